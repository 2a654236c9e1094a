import json
import os
import socket
import subprocess
import sys
import time

import checks
import numpy as np
import pytest
from commands import assert_one_sentence, run
from conftest import ROOT

from albert_tf.errors import UserError
from albert_tf.pretraining import pretrain
from albert_tf.run_config import PretrainConfig
from albert_tf.workers import workers_of_environment

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
    """Returns a function that starts worker processes; those that still run when the test ends are killed."""
    workers = []

    def start(flags, count=2):
        addresses = free_addresses(count)
        command = [sys.executable, *MODULE, *(f"--{name}={value}" for name, value in flags.items())]
        for index in range(count):
            environment = {**os.environ, "TF_CONFIG": tf_config(addresses, index)}
            workers.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment))
        return workers

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


@pytest.fixture
def settings(alice_records, tmp_path):
    return checks.pretrain_settings(
        alice_records, tmp_path / "run", model={"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
        eval_batch_size=10, num_train_steps=6, num_warmup_steps=1, save_checkpoints_steps=3,
    )  # fmt: skip


def metrics_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_two_workers_take_the_steps_of_one_and_only_the_chief_writes(settings, start_workers, tmp_path):
    workers = start_workers({**settings, "output_dir": tmp_path / "two", "gradient_accumulation_steps": 2})
    settings["iterations_per_loop"] = "3"
    pretrain(PretrainConfig(**settings))
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    one, two = checks.read_weights(tmp_path / "run"), checks.read_weights(tmp_path / "two")
    for name, value in one.items():
        assert np.abs(value - two[name]).max() < (1e-4 if name.endswith("key/bias") else 1e-5), name
    ours, theirs = ([m for m in metrics_of(tmp_path / d) if m["split"] == "eval"] for d in ("run", "two"))
    assert [m["step"] for m in ours] == [m["step"] for m in theirs] == [3, 6]
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-5 and a["swapped_share"] == pytest.approx(b["swapped_share"])
    assert "step 6/6" in errors[0] and "step 6/6" not in errors[1]


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
