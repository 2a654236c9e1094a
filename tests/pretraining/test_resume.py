"""Runs that are cut short, or go on elsewhere, against runs that were not."""

import dataclasses
import json
import os

import checks
import numpy as np
import pytest
import tensorflow as tf
from commands import run
from conftest import ROOT

from albert_tf.pretraining.pretraining_run import pretrain
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training import distribution


@pytest.fixture
def make_config(alice_records, tmp_path):
    def make(name, **changes):
        model = {"num_hidden_layers": 1, "hidden_dropout_prob": 0.1}
        ours = {"max_eval_steps": 1, "learning_rate": 0.005, "iterations_per_loop": "7", "keep_checkpoint_max": 2}
        settings = checks.pretrain_settings(alice_records, tmp_path / name, model=model, **{**ours, **changes})
        return PretrainConfig(**settings)

    return make


def run_both(whole, killed, path, *, kills):
    """Runs kill_and_resume.py; returns what it reports."""
    path.write_text(json.dumps([dataclasses.asdict(whole), dataclasses.asdict(killed)]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = run("tests/kill_and_resume.py", path, 5, kills, timeout=1200, env=environment)
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["statuses"] == [0, 0], process.stderr[-3000:]
    return report


def metrics_of(config, split, *names):
    with open(os.path.join(config.output_dir, "metrics.jsonl")) as stream:
        entries = [json.loads(line) for line in stream]
    return [tuple(entry[name] for name in names) for entry in entries if entry["split"] == split]


def compare(make_config, tmp_path, *, kills, **settings):
    whole, killed = make_config("whole", **settings), make_config("killed", **settings)
    report = run_both(whole, killed, tmp_path / "configs.json", kills=kills)
    print(report)
    checks.assert_same_checkpoints(whole.output_dir, killed.output_dir)
    evaluated = metrics_of(whole, "eval", "step", "loss")
    assert evaluated == metrics_of(killed, "eval", "step", "loss") and len(evaluated) > 2
    steps = metrics_of(killed, "train", "step")
    assert steps == sorted(set(steps))
    events = tmp_path / "killed" / "tensorboard" / "eval"
    values = [e.step for f in sorted(events.iterdir()) for e in tf.compat.v1.train.summary_iterator(str(f))
              for v in e.summary.value if v.tag == "loss"]  # fmt: skip
    assert values == [step for step, _ in evaluated]
    return report


def test_a_run_killed_twice_ends_with_the_bits_of_one_that_was_not(make_config, tmp_path):
    report = compare(make_config, tmp_path, kills=2, num_train_steps=400, save_checkpoints_steps=50)
    assert report["steps"][0] > 0  # something was saved before the first kill


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_with_the_bits_of_one_that_was_not(make_config, tmp_path):
    report = compare(make_config, tmp_path, kills=20, num_train_steps=6000, save_checkpoints_steps=50)
    assert report["during_saves"] >= 3


@pytest.mark.slow
def test_a_run_goes_on_on_another_number_of_devices_with_the_same_losses(make_config, tmp_path, monkeypatch, caplog):
    strategies = {1: tf.distribute.get_strategy(), 2: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])}

    def run(name, devices):
        with monkeypatch.context() as patch:
            patch.setattr(distribution, "make_strategy", lambda *_, **__: strategies[devices])
            config = make_config(
                name, num_train_steps=8, num_warmup_steps=1, save_checkpoints_steps=4, iterations_per_loop="1"
            )
            assert pretrain(config) == 0
        return config

    whole = run("whole", 1)
    assert "not bit for bit" not in caplog.text
    for before, after in ((2, 1), (1, 2)):
        name = f"{before} to {after}"
        run(name, before)
        for file in (tmp_path / name).glob("model.ckpt-8.*"):
            file.unlink()  # as if it had been killed after step 4
        caplog.clear()
        moved = run(name, after)
        assert (
            f"From step 4 on this run is not bit for bit what it would have been (replicas: {before} before, "
            f"{after} now); the data and their order are"
        ) in caplog.text
        for split, steps in (("train", list(range(1, 9))), ("eval", [4, 8])):
            expected, actual = (metrics_of(config, split, "step", "loss") for config in (whole, moved))
            assert [step for step, _ in actual] == steps
            assert np.abs(np.array(expected) - np.array(actual)).max() < 1e-5
        weights = checks.read_weights(moved.output_dir)
        for variable, value in checks.read_weights(whole.output_dir).items():
            limit = 1e-4 if variable.endswith("key/bias") else 1e-5  # the gradients of key biases are rounding noise
            assert np.abs(value - weights[variable]).max() < limit, variable
