import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time

import checks
import keras
import numpy as np
import pytest
from commands import assert_one_sentence, run
from conftest import ROOT

from albert_tf.architecture.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.pretraining.batches import training_dataset
from albert_tf.pretraining.pretraining_run import pretrain
from albert_tf.pretraining.record_data import open_data
from albert_tf.records.contract import decode_example, encode_examples
from albert_tf.records.framing import frame, read_records
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training.kept_checkpoints import saved_steps
from albert_tf.training.workers import workers_of_environment

MODULE = ["-m", "albert_tf.run_pretraining"]


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def tf_config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


@pytest.fixture
def start_workers():
    """Returns a function that starts two worker processes, always at the same addresses; the test's end kills them.

    `second` changes settings of the second one.
    """
    started, addresses = [], free_addresses(2)

    def start(settings, **second):
        workers = []
        for index, changes in enumerate(({}, second)):
            flags = [f"--{name}={value}" for name, value in {**settings, **changes}.items() if value is not None]
            environment = {**os.environ, "TF_CONFIG": tf_config(addresses, index)}
            command = [sys.executable, *MODULE, *flags]
            workers.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment))
        started.extend(workers)
        return workers

    yield start
    for worker in started:
        worker.kill()
        worker.communicate()


@pytest.fixture
def settings(alice_records, tmp_path):
    return make_settings(alice_records, tmp_path / "run", num_warmup_steps=1)


def make_settings(records, directory, *, dropout=0.1, **changes):
    model = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    ours = {"num_train_steps": 6, "save_checkpoints_steps": 3, "eval_batch_size": 10, "iterations_per_loop": "1"}
    return checks.pretrain_settings(records, directory, model=model, **{**ours, **changes})


def metrics_of(directory, split):
    entries = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry["split"] == split]


def ended(workers, *, status=0):
    """Waits for workers that must end with this status; returns what they wrote to stderr."""
    errors = [worker.communicate(timeout=240)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [status, status], errors
    return errors


def end_in_one_sentence(workers, *parts):
    for worker, errors in zip(workers, ended(workers, status=1), strict=True):
        assert_one_sentence(subprocess.CompletedProcess(worker.args, worker.returncode, stderr=errors), *parts)


def run_one_and_two(settings, start_workers, directory, **one):
    """Runs two processes into `two`, and one into `one` with these changes; returns what the workers wrote to stderr.

    Losses and weights are compared; the gradients of key biases are rounding noise.
    """
    workers = start_workers({**settings, "output_dir": directory / "two"})
    assert pretrain(PretrainConfig(**{**settings, "output_dir": str(directory / "one"), **one})) == 0
    errors = ended(workers)
    for split in ("train", "eval"):
        ours, theirs = (metrics_of(directory / name, split) for name in ("one", "two"))
        assert [m["step"] for m in ours] == [m["step"] for m in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert abs(a["loss"] - b["loss"]) < 1e-5
            assert a["swapped_share"] == pytest.approx(b["swapped_share"])
    one, two = (checks.read_weights(directory / name) for name in ("one", "two"))
    for name, value in one.items():
        assert np.abs(value - two[name]).max() < (1e-4 if name.endswith("key/bias") else 1e-5), name
    return errors


def test_two_workers_take_the_steps_of_one_and_only_the_chief_writes(settings, start_workers, tmp_path):
    settings["gradient_accumulation_steps"] = 2
    errors = run_one_and_two(settings, start_workers, tmp_path, gradient_accumulation_steps=1)
    assert [m["step"] for m in metrics_of(tmp_path / "two", "eval")] == [3, 6]
    assert "step 6/6" in errors[0] and "step 6/6" not in errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("parts", [1, 4])
def test_two_workers_take_twenty_steps_of_one(alice_records, start_workers, tmp_path, optimizer, dropout, parts):
    settings = make_settings(
        alice_records, tmp_path / "run", dropout=dropout, eval_input_file=None, optimizer=optimizer,
        gradient_accumulation_steps=parts, num_train_steps=20, num_warmup_steps=2, save_checkpoints_steps=20,
    )  # fmt: skip
    run_one_and_two(settings, start_workers, tmp_path, gradient_accumulation_steps=1)
    assert [m["step"] for m in metrics_of(tmp_path / "two", "train")] == list(range(1, 21))


@pytest.fixture
def poisoned_settings(alice_records, tmp_path):
    """Settings of a run whose loss is not finite at step 5, by an example that only the second worker sees."""
    records = shutil.copytree(alice_records, tmp_path / "records")
    settings = make_settings(
        records, tmp_path / "run", eval_input_file=None, num_train_steps=9, num_warmup_steps=1, max_rollbacks=1
    )
    config = PretrainConfig(**settings)
    data = open_data(config, AlbertConfig.load(config.albert_config_file))
    keras.utils.set_random_seed(config.random_seed)  # as the run does; the shuffled order depends on it
    fifth = training_dataset(data.train, batch_size=8, seed=config.random_seed, start_step=4, rows=slice(4, 8))
    bad = {name: values[2].numpy() for name, values in next(iter(fifth)).items()}
    poisoned = 0
    for file in records.glob("train-*"):
        examples = [decode_example(record) for record in read_records(file)]
        for example in examples:
            if all(np.array_equal(example[name], bad[name]) for name in ("input_ids", "masked_lm_positions")):
                example["masked_lm_weights"][0] = np.inf
                poisoned += 1
        batch = {name: np.stack([example[name] for example in examples]) for name in examples[0]}
        file.write_bytes(b"".join(map(frame, encode_examples(batch))))
    assert poisoned == 1
    return settings


@pytest.mark.slow
def test_workers_roll_back_together_and_skip_the_data_that_one_process_skips(
    poisoned_settings, start_workers, tmp_path
):
    errors = run_one_and_two(poisoned_settings, start_workers, tmp_path)
    for text in errors:
        assert "not finite at step 5: going on from the checkpoint of step 3 with the data after step 5" in text
    assert [m["step"] for m in metrics_of(tmp_path / "two", "train")] == list(range(1, 10))
    rollbacks = [json.loads((tmp_path / name / "rollbacks.json").read_text()) for name in ("one", "two")]
    assert rollbacks[0] == rollbacks[1]
    assert [(entry["restored_step"], entry["diverged_step"]) for entry in rollbacks[1]] == [(3, 5)]


@pytest.mark.slow
def test_workers_that_may_not_roll_back_end_in_the_same_sentence(poisoned_settings, start_workers):
    workers = start_workers({**poisoned_settings, "max_rollbacks": 0})
    end_in_one_sentence(
        workers, "not finite at step 5, after as many rollbacks as --max_rollbacks=0 allows; the newest checkpoint"
    )


@pytest.mark.slow
def test_workers_with_different_flags_end_in_a_sentence(settings, start_workers, tmp_path):
    workers = start_workers(settings, save_checkpoints_steps=4)
    end_in_one_sentence(workers, "the workers have different flags, models, records or precision (here ")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_worker_that_refuses_what_it_is_told_ends_the_other_in_a_sentence_too(settings, start_workers):
    errors = ended(start_workers(settings, train_batch_size=9), status=1)
    for text, sentence in zip(errors, ("has stopped answering", "must be a multiple of their number"), strict=True):
        assert sentence in text.splitlines()[-1] and "Traceback" not in text


@pytest.mark.slow
def test_workers_that_find_different_checkpoints_end_in_a_sentence(settings, start_workers, tmp_path):
    pretrain(PretrainConfig(**settings))
    workers = start_workers(settings, output_dir=tmp_path / "elsewhere")
    end_in_one_sentence(workers, "the workers have different checkpoints", "with the same --output_dir and records")


@pytest.mark.slow
def test_workers_that_would_go_back_to_different_checkpoints_end_in_a_sentence(
    poisoned_settings, start_workers, tmp_path
):
    workers = start_workers(poisoned_settings, output_dir=tmp_path / "elsewhere")
    end_in_one_sentence(workers, "the workers have different checkpoints", "with the same --output_dir and records")


@pytest.mark.slow
def test_workers_that_are_killed_and_started_again_end_with_the_bits_of_those_that_were_not(
    settings, start_workers, tmp_path
):
    settings.update(num_train_steps=160, save_checkpoints_steps=20, max_eval_steps=1, iterations_per_loop="7")
    whole, killed = ({**settings, "output_dir": tmp_path / name} for name in ("whole", "killed"))
    ended(start_workers(whole))
    workers, deadline = start_workers(killed), time.monotonic() + 240
    last = random.choice((20, 60, 100))
    while last not in saved_steps(tmp_path / "killed") and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.uniform(0.0, 0.3))
    for worker in workers:
        worker.kill()
        worker.wait()
    newest = saved_steps(tmp_path / "killed")[-1]
    assert newest < 160
    for text in ended(start_workers(killed)):
        assert f"Continuing from step {newest} of 160" in text
    checks.assert_same_checkpoints(tmp_path / "whole", tmp_path / "killed")
    for split in ("train", "eval"):
        ours, theirs = ([m["step"] for m in metrics_of(tmp_path / d, split)] for d in ("whole", "killed"))
        assert theirs == sorted(set(theirs)) and (split == "train" or ours == theirs)


@pytest.mark.slow
def test_a_worker_that_stays_away_ends_in_a_sentence_within_a_minute(settings):
    began = time.monotonic()
    addresses = free_addresses(2)
    environment = {**os.environ, "TF_CONFIG": tf_config(addresses, 0)}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    process = run(*MODULE, *flags, env=environment)
    assert time.monotonic() - began < 75  # of which some to import TensorFlow on a busy machine
    assert_one_sentence(process, f"worker {addresses[1]} of TF_CONFIG has not joined within 50 seconds")


@pytest.mark.slow
def test_a_worker_that_is_lost_ends_in_a_sentence_within_a_minute(settings, start_workers, tmp_path):
    workers = start_workers({**settings, "num_train_steps": 1_000_000, "save_checkpoints_steps": 1_000_000})
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 3) and time.monotonic() < deadline:
        time.sleep(0.2)
    workers[1].kill()
    _, errors = workers[0].communicate(timeout=60)
    assert workers[0].returncode == 1
    assert "Error: a worker or device has stopped answering" in errors.splitlines()[-1] and "Traceback" not in errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG must look like"),
        ("[]", "TF_CONFIG must look like"),
        ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 2}}', "TF_CONFIG must look like"),
        ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": -1}}', "TF_CONFIG must look"),
        ('{"cluster": {"worker": ["a", "b:2"]}, "task": {"type": "worker", "index": 0}}', "TF_CONFIG must look like"),
        (tf_config(["a:1", "a:1"], 0), "may name each address once"),
        ('{"cluster": {"worker": ["a:1"], "ps": ["c:3"]}, "task": {"type": "worker", "index": 0}}', "each address"),
    ],
)  # fmt: skip
def test_a_malformed_cluster_is_refused(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=message):
        workers_of_environment()


def test_the_chief_comes_first_and_one_worker_is_none(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1", "b:2"], "chief": ["c:3"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert workers_of_environment() == (["c:3", "a:1", "b:2"], 2)
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1"], 0))
    assert workers_of_environment() is None
