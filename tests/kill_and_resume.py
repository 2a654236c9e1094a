"""Runs pre-training again and again in child processes that are killed; used by test_resume.py.

A child is forked after TensorFlow has been imported, before it has computed anything, so that a life costs little.

    python tests/kill_and_resume.py CONFIGS.json SEED KILLS
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from albert_tf.pretraining.pretraining_run import pretrain  # imports TensorFlow, once for all lives
from albert_tf.settings.pretraining import PretrainConfig


def live(config: PretrainConfig) -> int:
    """Forks a child that runs `pretrain`; returns its process id."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = pretrain(config)
        finally:
            os._exit(status)
    return child


def is_saving(directory: Path) -> bool:
    """Returns whether a checkpoint is being written at this moment."""
    return any(directory.glob("model.ckpt-*_temp*"))


def newest(directory: Path) -> int:
    """Returns the step of the newest checkpoint, 0 without one."""
    return max((int(path.stem.split("-")[-1]) for path in directory.glob("model.ckpt-*.index")), default=0)


def kill_somewhere(child: int, directory: Path, draw: random.Random, *, kind: str) -> bool:
    """Kills a child at a moment of this kind; returns whether a checkpoint was being written."""
    began, before, since_progress = time.monotonic(), newest(directory), None
    early, late = draw.uniform(0.5, 4.0), draw.uniform(0.0, 1.0)
    while True:
        if os.waitpid(child, os.WNOHANG)[0]:
            raise SystemExit("a life ended by itself; lengthen the run")
        if since_progress is None and newest(directory) > before:
            since_progress = time.monotonic()
        progressed = since_progress is not None and time.monotonic() - since_progress > late
        if kind == "early" and time.monotonic() - began > early:
            break
        if progressed and (kind == "late" or is_saving(directory)):
            break
        time.sleep(0.0002 if kind == "saving" and progressed else 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return is_saving(directory)


def main() -> None:
    """Runs once to the end, and once with kills at random moments; prints the step of the newest checkpoint at each."""
    whole, killed = (PretrainConfig(**settings) for settings in json.loads(Path(sys.argv[1]).read_text()))
    directory, draw, kills = Path(killed.output_dir), random.Random(int(sys.argv[2])), int(sys.argv[3])
    children, during_saves, steps = [live(whole)], 0, []
    for number in range(kills):
        kind = ("late", "early", "saving")[number % 3]
        during_saves += kill_somewhere(live(killed), directory, draw, kind=kind)
        steps.append(newest(directory))
    children.append(live(killed))
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps({"steps": steps, "during_saves": during_saves, "statuses": statuses}))


if __name__ == "__main__":
    main()
