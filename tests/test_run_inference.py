import json
import os
import signal
import subprocess
import sys
import time

import commands
import numpy as np
import pytest
from conftest import ROOT

COMMAND = ("-m", "albert_tf.run_inference")


def test_a_file_of_texts_becomes_an_array(run_directory, tmp_path):
    (tmp_path / "texts.txt").write_text("Call me Ishmael.\nDown, down, down.\n")
    process = commands.run(*COMMAND, f"--checkpoint={run_directory}", f"--input={tmp_path / 'texts.txt'}",
                           f"--output={tmp_path / 'out.npy'}")  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "2 texts answered" in process.stderr
    assert np.load(tmp_path / "out.npy").shape == (2, 16)
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "out.npy"}


def test_mistakes_end_in_a_sentence(run_directory, tmp_path):
    (tmp_path / "texts.tsv").write_text("id\tsentence\n1\tAlice\n2\tdown\tdown\n")
    flags = [f"--input={tmp_path / 'texts.tsv'}", f"--output={tmp_path / 'out.jsonl'}"]
    commands.assert_one_sentence(commands.run(*COMMAND, *flags), "one of --checkpoint and --saved_model_dir")
    flags += [f"--checkpoint={run_directory}"]
    commands.assert_one_sentence(commands.run(*COMMAND, *flags), "texts.tsv:1: there is no column 'text'", "sentence")
    process = commands.run(*COMMAND, *flags, "--text_column=sentence")
    commands.assert_one_sentence(process, "texts.tsv:3: 3 fields, and the header has 2; --bad_rows=skip")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.tsv"]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(run_directory, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"Alice was {'very ' * (number % 9)}tired of {number}.\n" for number in range(120_000)))
    flags = [f"--checkpoint={run_directory}", f"--input={texts}"]
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert commands.run(*COMMAND, *flags, f"--output={whole}").returncode == 0
    command = [sys.executable, *COMMAND, *flags, f"--output={killed}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    progress = tmp_path / ".killed.jsonl.progress"
    deadline = time.monotonic() + 100
    while not progress.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert 0 < json.loads(progress.read_text())["position"][1] < 120_000
    assert not killed.exists()
    process = commands.run(*COMMAND, *flags, f"--output={killed}")
    assert process.returncode == 0 and "Continuing" in process.stderr, process.stderr
    assert killed.read_bytes() == whole.read_bytes()
    assert not progress.exists()
