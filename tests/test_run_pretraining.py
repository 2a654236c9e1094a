import json
import os
import re
import signal
import subprocess
import sys
import time

import checks
import pytest
from commands import assert_one_sentence, run
from conftest import ROOT

MODULE = ["-m", "albert_tf.run_pretraining"]


def flags_of(alice_records, tmp_path, **changes):
    shape = tmp_path / "albert_config.json"
    checks.tiny_config(vocab_size=600).save(shape)
    flags = {"albert_config_file": shape, "input_file": f"{alice_records}/train-*", "output_dir": tmp_path / "run",
             "train_batch_size": 16, "num_train_steps": 100_000, "save_checkpoints_steps": 100_000,
             "learning_rate": 0.001}  # fmt: skip
    return [f"--{name}={value}" for name, value in {**flags, **changes}.items()]


def test_an_interrupt_saves_and_the_same_command_goes_on(alice_records, tmp_path):
    flags = flags_of(alice_records, tmp_path)
    process = subprocess.Popen([sys.executable, *MODULE, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while (not metrics.exists() or not metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Stopped by signal SIGINT" in errors and "the same command goes on from there" in errors
    assert "Traceback" not in errors
    step = max(json.loads(line)["step"] for line in metrics.read_text().splitlines())
    assert (tmp_path / "run" / f"model.ckpt-{step}.index").exists()
    second = subprocess.Popen([sys.executable, *MODULE, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    for line in second.stderr:
        if f"Continuing from step {step}" in line:
            break
    second.kill()
    assert f"Continuing from step {step}" in line
    second.communicate()


def test_mistakes_end_in_one_sentence(alice_records, tmp_path):
    bad = flags_of(alice_records, tmp_path, input_file="nothing-*")
    assert_one_sentence(run(*MODULE, *bad), "--input_file: 'nothing-*' matches no file")
    (tmp_path / "bad.json").write_text('{"vocab_size": 600, "hiden_size": 3}')
    bad = flags_of(alice_records, tmp_path, albert_config_file=tmp_path / "bad.json")
    assert_one_sentence(run(*MODULE, *bad), "bad.json: unknown key 'hiden_size'; did you mean 'hidden_size'?")
    assert not (tmp_path / "run").exists()


def test_flags_of_the_original_are_answered_with_what_stands_for_them(alice_records, tmp_path):
    from albert_tf.errors import UserError
    from albert_tf.settings.command_line import parse_flags
    from albert_tf.settings.pretraining import PretrainConfig

    flags = flags_of(alice_records, tmp_path)
    for flag in ("use_tpu", "tpu_name", "master", "num_tpu_cores", "masked_lm_budget", "init_from_group0"):
        with pytest.raises(UserError, match=f"unknown flag --{flag}; {re.escape(PretrainConfig.REPLACED[flag])}"):
            parse_flags(PretrainConfig, ["command", *flags, f"--{flag}=1"])


def test_the_settings_are_shown_before_tensorflow_is_imported(alice_records, tmp_path):
    process = run("-X", "importtime", *MODULE, *flags_of(alice_records, tmp_path, dry_run=True))
    assert process.returncode == 0
    assert 0 < process.stderr.index("Settings: --albert_config_file=") < process.stderr.index("tensorflow")
    assert "Nothing was done: --dry_run" in process.stderr


def test_help_does_not_import_tensorflow():
    process = run("-X", "importtime", *MODULE, "--help")
    assert process.returncode == 0
    assert "--iterations_per_loop" in process.stdout
    assert "tensorflow" not in process.stderr


def test_the_shipped_flag_files_parse():
    from albert_tf.architecture.config import AlbertConfig
    from albert_tf.settings.command_line import parse_flags
    from albert_tf.settings.data_preparation import RecordsConfig, VocabConfig
    from albert_tf.settings.pretraining import PretrainConfig

    kinds = {"pretrain": PretrainConfig, "records": RecordsConfig, "vocab": VocabConfig}
    required = {"albert_config_file", "input_file", "output_dir", "spm_model_file"}
    files = sorted((ROOT / "configs").glob("*.flags"))
    recipes = {
        f"pretrain_{size}_{version}" for size in ("base", "large", "xlarge", "xxlarge") for version in ("v1", "v2")
    }
    assert {file.stem for file in files} >= {*recipes, "pretrain_tiny", "pretrain_continue", "pretrain_demo"}
    for file in files:
        kind = kinds[file.name.split("_")[0]]
        given = [f"--{name}=x" for name in required if name in {f.name for f in kind.__dataclass_fields__.values()}]
        config = parse_flags(kind, ["command", *given, f"--flagfile={file}"])
        if file.stem in recipes:
            model = AlbertConfig.load(ROOT / config.albert_config_file)
            size, version = file.stem.split("_")[1:]
            assert (config.train_batch_size, config.peak_learning_rate, config.warmup_steps) == (4096, 0.00176, 3125)
            assert model.hidden_size == {"base": 768, "large": 1024, "xlarge": 2048, "xxlarge": 4096}[size]
            assert model.hidden_dropout_prob == model.attention_probs_dropout_prob
            assert model.hidden_dropout_prob == (0.1 if version == "v1" and size != "xxlarge" else 0.0)
        if kind is PretrainConfig and file.stem != "pretrain_continue":
            assert os.path.exists(ROOT / config.albert_config_file)
