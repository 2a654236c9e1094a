"""Runs the project's commands as a user would: in a process of their own, from the root."""

import subprocess
import sys

from conftest import ROOT


def run(*command, timeout=120, **options):
    """Runs `python <command>`; returns the finished process with its text output."""
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=timeout, **options
    )


def assert_one_sentence(process, *parts):
    """Checks that a command failed with one sentence, without a traceback, that has these parts."""
    assert process.returncode == 1, process.stderr
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: "), process.stderr
    assert "Traceback" not in process.stderr
    for part in parts:
        assert part in last, last
