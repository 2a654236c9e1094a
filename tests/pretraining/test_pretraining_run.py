import contextlib
import dataclasses
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import checks
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, ROOT

from albert_tf.checkpoints.converter import convert
from albert_tf.errors import UserError
from albert_tf.model import precision
from albert_tf.pretraining import pretraining_run
from albert_tf.pretraining.batches import training_dataset
from albert_tf.pretraining.pretraining_run import pretrain
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training.kept_checkpoints import saved_steps


@pytest.fixture
def make_config(alice_records, tmp_path):
    def make(**changes):
        short = {"train_batch_size": 16, "num_train_steps": 12, "num_warmup_steps": 2, "save_checkpoints_steps": 6,
                 "iterations_per_loop": "3"}  # fmt: skip
        return PretrainConfig(**checks.pretrain_settings(alice_records, tmp_path / "run", **{**short, **changes}))

    return make


def test_a_run_leaves_what_it_promises_and_its_repetition_says_done(make_config, tmp_path, capsys):
    config = make_config(export_dir=str(tmp_path / "export"), init_output_bias="unigram")
    assert pretrain(config) == 0
    summary = capsys.readouterr().out
    run = tmp_path / "run"
    assert {p.name for p in run.iterdir()} >= {
        "albert_config.json", "tokenizer", "run_config.json", "environment.json", "metrics.jsonl", "checkpoint",
        "model.ckpt-6.index", "model.ckpt-12.index", "tensorboard",
    }  # fmt: skip
    held_out = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"eval"' in line]
    assert [line["step"] for line in held_out] == [6, 12]
    assert json.loads((run / "best_checkpoint.json").read_text())["step"] in (6, 12)
    for part in (
        f"loss {held_out[-1]['masked_lm_loss']:.3f} nats",
        f"{held_out[-1]['masked_lm_unigram_cross_entropy']:.3f} nats",
        f"share of swapped pairs {held_out[-1]['swapped_share']:.3f}",
        "tokens a second",
        f"Export: {tmp_path / 'export' / '1'}",
    ):
        assert part in summary
    before = (run / "metrics.jsonl").read_text()
    assert pretrain(config) == 0
    again = capsys.readouterr()
    assert again.out == summary and (run / "metrics.jsonl").read_text() == before
    # Its export is not taken for that of another run.
    other = dataclasses.replace(config, output_dir=str(tmp_path / "other"), random_seed=7, num_train_steps=2)
    with pytest.raises(UserError, match="exists, and this run is not at its end"):  # before hours of training
        pretrain(other)
    assert not (tmp_path / "other").exists()
    pretrain(dataclasses.replace(other, export_dir=None))
    with pytest.raises(UserError, match="holds the export of another checkpoint"):
        pretrain(other)


def test_the_unigram_cross_entropy_is_that_of_the_masked_tokens(make_config, alice_records, tmp_path):
    """Against a loop over the held-out records."""
    from albert_tf.records.framing import read_records

    config = make_config(num_train_steps=1, num_warmup_steps=0)
    pretrain(config)
    counts = np.load(alice_records / "token_counts.npy") + 1
    log_probs = np.log(counts / counts.sum())
    losses = []
    for record in read_records(alice_records / "eval-00000-of-00001.tfrecord"):
        feature = tf.train.Example.FromString(record).features.feature
        weights = np.array(feature["masked_lm_weights"].float_list.value)
        losses += (-log_probs[np.array(feature["masked_lm_ids"].int64_list.value)])[weights > 0].tolist()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    held_out = json.loads(next(line for line in lines if '"eval"' in line))
    assert abs(held_out["masked_lm_unigram_cross_entropy"] - np.mean(losses)) < 1e-4


def test_the_bias_starts_at_the_token_frequencies_where_asked(make_config, alice_records):
    config = make_config(num_train_steps=1, num_warmup_steps=0, learning_rate=0.0, init_output_bias="unigram")
    pretrain(config)
    bias = checks.read_weights(config.output_dir)["cls/predictions/output_bias"]
    counts = np.load(alice_records / "token_counts.npy") + 1
    assert np.allclose(np.exp(bias), counts / counts.sum(), rtol=1e-4)


def test_a_run_is_continued_with_its_own_settings_only(make_config):
    pretrain(make_config(num_train_steps=3))
    with pytest.raises(UserError, match="started with learning_rate=0.01 and is now asked for 0.02"):
        pretrain(make_config(num_train_steps=3, learning_rate=0.02))


def test_training_starts_from_a_checkpoint_where_asked(make_config, tmp_path, capsys):
    pretrain(make_config(num_train_steps=2))
    first = checks.read_weights(str(tmp_path / "run"))
    config = make_config(
        output_dir=str(tmp_path / "next"), init_checkpoint=str(tmp_path / "run"), num_train_steps=2, learning_rate=0.0
    )
    pretrain(config)
    second = checks.read_weights(config.output_dir)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    convert(ConvertConfig(source=str(tmp_path / "run"), target=str(tmp_path / "hf"), target_format="hf"))
    pretrain(dataclasses.replace(config, output_dir=str(tmp_path / "hf-next"), init_checkpoint=str(tmp_path / "hf")))
    third = checks.read_weights(tmp_path / "hf-next")
    assert all(np.array_equal(first[name], third[name]) for name in first)
    with pytest.raises(UserError, match="has num_attention_heads=4, and the configuration asks for"):
        pretrain(dataclasses.replace(
            config, output_dir=str(tmp_path / "bad"), init_checkpoint=str(GOLDEN / "tf1_checkpoint" / "plain")
        ))  # fmt: skip


def test_a_converted_checkpoint_is_not_taken_for_a_run(make_config, tmp_path):
    convert(ConvertConfig(source=str(GOLDEN / "tf1_checkpoint" / "plain"), target=str(tmp_path / "converted")))
    for changes in ({}, {"do_eval": True, "input_file": None}):
        with pytest.raises(UserError, match="holds a converted checkpoint, not a run .* as --init_checkpoint, and"):
            pretrain(make_config(output_dir=str(tmp_path / "converted"), **changes))


def test_evaluation_alone_needs_no_training_records_and_changes_nothing(make_config, tmp_path, capsys):
    alone = {"do_eval": True, "input_file": None}
    with pytest.raises(UserError, match="has no checkpoint of one; --do_eval alone does not train"):
        pretrain(make_config(**alone))
    assert not (tmp_path / "run").exists()
    pretrain(make_config(num_train_steps=2))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    expected = [line for line in capsys.readouterr().out.splitlines() if "masked tokens" in line]
    assert pretrain(make_config(**alone)) == 0
    summary = capsys.readouterr().out.splitlines()
    assert [line for line in summary if "masked tokens" in line] == expected
    assert "Step 2 of 2;" in summary[1]  # of the run, not of these flags
    with pytest.raises(UserError, match="started with num_hidden_layers=3 and is now asked for 5"):
        pretrain(make_config(**alone, model={"num_hidden_layers": 5, "hidden_act": "relu"}))
    assert pretrain(make_config(**alone, eval_batch_size=7, max_eval_steps=2)) == 0
    assert "On 14 held-out examples" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before
    # A finished run that is asked for other held-out examples gives their numbers.
    assert pretrain(make_config(num_train_steps=2, eval_batch_size=7, max_eval_steps=2)) == 0
    fewer = capsys.readouterr().out.splitlines()
    assert "On 14 held-out examples:" in fewer and [line for line in fewer if "masked tokens" in line] != expected


def test_a_dry_run_says_what_would_run_and_leaves_nothing(make_config, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="absl"):
        assert pretrain(make_config(dry_run=True, learning_rate=None, gradient_accumulation_steps=2)) == 0
    assert not (tmp_path / "run").exists()
    for part in (
        "1 replica(s) on CPU",
        "computing in float32",
        "16 examples, 16 on a replica in 2 parts of 8",
        "lamb with a peak of 0.00011 (the published 0.00176 for 4096 examples, scaled by the square root of the batch)",
        "GiB for a replica",
        "Held out 84 examples",
    ):
        assert part in caplog.text, part


def test_a_start_that_fails_leaves_no_files(make_config, tmp_path):
    with pytest.raises(UserError, match="lacks|asks for"):
        pretrain(make_config(init_checkpoint=str(GOLDEN / "tf1_checkpoint" / "plain")))
    assert not (tmp_path / "run").exists()


def test_a_damaged_record_stops_training_with_its_file_and_place(make_config, alice_records, tmp_path):
    from albert_tf.records.framing import read_records_with_ends

    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    file = sorted(records.glob("train-*"))[1]
    ends = [end for _, end in read_records_with_ends(file)]
    content = bytearray(file.read_bytes())
    content[ends[9] + 60] ^= 4
    file.write_bytes(content)
    with pytest.raises(
        UserError, match=f"{file.name} is damaged: the checksum of the record at byte {ends[9]} is wrong"
    ):
        pretrain(make_config(input_file=f"{records}/train-*"))


def test_records_of_another_vocabulary_stop_training(make_config, tmp_path):
    config = make_config(
        input_file=str(GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"),
        eval_input_file=None,
        model={"max_position_embeddings": 64},
    )
    with pytest.raises(UserError, match="a token id outside the vocabulary .* made with a different vocabulary"):
        pretrain(config)


@pytest.mark.slow
def test_memory_that_runs_out_ends_in_a_sentence_and_the_run_goes_on(make_config, tmp_path, monkeypatch):
    config = make_config(num_train_steps=6, save_checkpoints_steps=2, eval_input_file=None, iterations_per_loop="1")

    def too_large_at_step_5(*arguments, start_step, **settings):
        def allocate(step, batch):
            size = tf.where(step == 4, tf.constant(2**50, tf.int64), 1)
            return {**batch, "example_weights": batch["example_weights"] + tf.reduce_max(tf.random.uniform([size])) * 0}

        return training_dataset(*arguments, start_step=start_step, **settings).enumerate(start_step).map(allocate)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining_run, "training_dataset", too_large_at_step_5)
        with pytest.raises(UserError, match=r"out of memory \(.*OOM when allocating .*; raise --gradient_accumulation"):
            pretrain(config)
    assert saved_steps(tmp_path / "run") == [2, 4]
    assert pretrain(config) == 0
    assert saved_steps(tmp_path / "run") == [2, 4, 6]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_fills_up_ends_in_a_sentence_and_the_run_goes_on(make_config, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine does not let root mount")
    settings = {"num_train_steps": 12, "save_checkpoints_steps": 1, "keep_checkpoint_max": 100}
    config = make_config(**settings, output_dir=str(disk / "run"), eval_input_file=None, iterations_per_loop="1")
    try:
        with pytest.raises(
            UserError, match=r"model.ckpt-\d+ could not be written .* is the disk full\? The checkpoint"
        ):
            pretrain(config)
        good = saved_steps(disk / "run")
        assert good and good[-1] < 12
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert pretrain(config) == 0
        assert saved_steps(disk / "run") == list(range(1, 13))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


_SERVER = "import sys, tensorflow as tf\ntf.distribute.Server({'worker': [sys.argv[1]]}, job_name='worker').join()"


@pytest.mark.slow
def test_a_remote_accelerator_takes_the_same_steps_and_all_files_are_written_here(make_config, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # The server, in a directory of its own, would write the relative --output_dir there.
    server = subprocess.Popen([sys.executable, "-c", _SERVER, address], cwd=there, stderr=subprocess.DEVNULL)
    local = make_config(num_train_steps=6, save_checkpoints_steps=3)
    settings = json.dumps({**dataclasses.asdict(local), "output_dir": "run"})
    try:
        for _ in range(2):
            for file in here.glob("run/model.ckpt-6.*"):  # the second time goes on from step 3
                file.unlink()
            remote = [sys.executable, ROOT / "tests" / "remote_run.py", address, settings]
            assert subprocess.run(remote, cwd=here, timeout=120).returncode == 0
    finally:
        server.kill()
        server.wait()
    pretrain(local)
    assert not list(there.iterdir())
    ours, theirs = checks.read_weights(local.output_dir), checks.read_weights(here / "run")
    for name, value in ours.items():
        assert np.abs(value - theirs[name]).max() < 1e-6, name


def test_a_stop_after_the_last_step_leaves_the_summary_to_the_next_start(make_config, monkeypatch, capsys):
    config = make_config(num_train_steps=2)
    assert pretrain(config) == 0 and "Step 2 of 2" in capsys.readouterr().out
    monkeypatch.setattr(pretraining_run, "stop_requests", lambda **_: contextlib.nullcontext(["a notice"]))
    assert pretrain(config) == 0 and not capsys.readouterr().out


def test_two_processes_do_not_train_into_one_directory(make_config, tmp_path):
    from albert_tf.files import locked_directory

    (tmp_path / "run").mkdir()
    message = "another process is training into .*/run; wait for it, or stop it"
    with locked_directory(tmp_path / "run", what="x"), pytest.raises(UserError, match=message):
        pretrain(make_config())


def test_held_out_records_of_another_kind_are_refused(make_config, alice_records, tmp_path):
    from albert_tf.records.manifest import Manifest

    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    dataclasses.replace(Manifest.load(records), pair_task="nsp").save(records)
    with pytest.raises(UserError, match="a different pair task from the training records .* [(]nsp and sop[)]"):
        pretrain(make_config(eval_input_file=f"{records}/eval-*"))


def test_other_records_under_the_same_names_are_noticed(make_config, alice_records, tmp_path):
    from albert_tf.records.manifest import Manifest

    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    config = make_config(input_file=f"{records}/train-*", num_train_steps=2, save_checkpoints_steps=1)
    pretrain(config)
    manifest = Manifest.load(records)
    first, second = sorted(records.glob("train-*"))
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    shards = {**manifest.shards, first.name: manifest.shards[second.name], second.name: manifest.shards[first.name]}
    dataclasses.replace(manifest, shards=shards).save(records)
    with pytest.raises(UserError, match="was started with records='.* fingerprint"):
        pretrain(config)


def test_records_without_pairs_train_without_a_pair_head(make_config, alice_records, tmp_path):
    from albert_tf.records.manifest import Manifest

    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    dataclasses.replace(Manifest.load(records), pair_task="none").save(records)
    config = make_config(input_file=f"{records}/train-*", eval_input_file=f"{records}/eval-*", num_train_steps=2)
    pretrain(config)
    assert not [name for name in checks.read_weights(config.output_dir) if "seq_relationship" in name]


def test_the_originals_records_train_with_the_tokenizer_on_the_command_line(make_config, tmp_path):
    shape = tmp_path / "thirty_thousand.json"
    checks.tiny_config(vocab_size=30000, max_position_embeddings=64).save(shape)
    config = make_config(
        albert_config_file=str(shape),
        input_file=str(GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"),
        eval_input_file=None,
        spm_model_file=str(GOLDEN / "tokenization" / "spiece.model"),
        num_train_steps=2,
    )
    assert pretrain(config) == 0
    assert (tmp_path / "run" / "tokenizer" / "spiece.model").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type_vocab_size": 1}}, "has type_vocab_size=1, and records of pairs need a segment for each text"),
        ({"model": {"max_position_embeddings": 16}}, "max_seq_length=32, and .* only max_position_embeddings=16"),
        ({"max_seq_length": 128}, "--max_seq_length=128, but the records"),
        ({"input_file": "none-*.tfrecord"}, "--input_file: 'none-.*' matches no file"),
        ({"spm_model_file": str(GOLDEN / "tokenization" / "spiece.model")}, "is not the tokenizer of the records"),
        ({"train_batch_size": 10**9}, "needs at least .* GiB of memory"),
        ({"train_batch_size": 15, "gradient_accumulation_steps": 2}, "15 and 1 replicas and 2 --gradient_accum"),
        ({"albert_config_file": "none.json"}, "'none.json' does not exist"),
        ({"init_checkpoint": ""}, "the checkpoint's path is empty"),
    ],
    ids=str,
)
def test_mistakes_are_found_before_training(make_config, changes, message):
    with pytest.raises(UserError, match=message):
        pretrain(make_config(**changes))


def test_a_vocabulary_of_another_size_is_refused(make_config, tmp_path):
    config = make_config()
    checks.tiny_config(vocab_size=700).save(config.albert_config_file)
    with pytest.raises(UserError, match="vocab_size=700, and the tokenizer of the records has 600 pieces"):
        pretrain(config)
    assert not (tmp_path / "run").exists()


def test_precision_is_resolved_once_and_kept(make_config, monkeypatch):
    config = make_config(precision="auto", num_train_steps=2)
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: False)
    pretrain(config)
    assert json.loads((Path(config.output_dir) / "run_config.json").read_text())["precision"] == "float32"
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: True)
    assert pretrain(config) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_checkpoint": "nowhere"}, "'nowhere' does not exist"),
        ({"init_checkpoint": str(GOLDEN / "tf1_checkpoint" / "plain")}, "the configuration asks for"),
        ({"output_dir": __file__}, "--output_dir=.* is a file; name a directory"),
        ({"export_dir": "/proc/x"}, "--export_dir=/proc/x cannot be written"),
    ],
)
def test_a_dry_run_checks_what_a_run_would_read_and_write(make_config, changes, message):
    with pytest.raises(UserError, match=message):
        pretrain(make_config(dry_run=True, **changes))
