"""The checkpoints of a training run: which are kept, and from which one it continues.

TensorFlow writes the files of a checkpoint under temporary names and renames its index last, so a killed save leaves
none that looks whole. One that the disk damaged later is found by its checksums, and the one before it is used.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.native import CHECKPOINT_NAME, point_to
from albert_tf.errors import UserError, first_line
from albert_tf.files import read_json, write_json
from albert_tf.training.optimizers import AlbertOptimizer

BEST_FILE = "best_checkpoint.json"
DAMAGED_PREFIX = "damaged-"
DIVERGED_PREFIX = "diverged-"

_FILE = re.compile(rf"{re.escape(CHECKPOINT_NAME)}-(\d+)[._].+")


class RunCheckpoints:
    """The checkpoints in one output directory. Of several workers only the chief (`writes`) changes the directory.

    `file_device` reads and writes them; None: the host of each variable.
    """

    def __init__(
        self,
        directory: Path,
        *,
        variables: Mapping[str, tf.Variable],
        optimizer: AlbertOptimizer,
        state: Mapping[str, tf.Variable],
        keep: int,
        writes: bool = True,
        file_device: str | None = None,
    ) -> None:
        self._directory = directory
        self._global_step = state["global_step"]
        self._checkpoint = tf.train.Checkpoint(weights=dict(variables), slots=dict(optimizer.slots), **state)
        self._keep = keep
        self._writes = writes
        self._options = tf.train.CheckpointOptions(experimental_io_device=file_device)
        self._in_force: int | None = None

    def save(self) -> None:
        """Saves weights, slots and state as `model.ckpt-<step>`, unless that step is in force already.

        Keeps the newest N and the best by held-out loss. Older ones go only when the new one is on the disk.
        """
        step = int(self._global_step.numpy())
        if not self._writes or step == self._in_force:
            return
        prefix = self._prefix(step)
        try:
            self._checkpoint.write(str(prefix), self._options)
            for file in (*self._files(step), self._directory):
                _flush_to_disk(file)
            self._in_force = step
            self._point_to(step)
        except tf.errors.OpError as error:
            reason = error.message.split("}} ")[-1]
            raise UserError(
                f"{prefix} could not be written ({reason}); is the disk full? The checkpoint before it is in force"
            ) from None
        best = self.best()
        surplus = [old for old in saved_steps(self._directory)[: -self._keep] if best is None or old != best[0]]
        for old in surplus:
            self._remove(old)
        if surplus:
            self._point_to(step)

    def restore_latest(self, *, doubted: int | None = None) -> bool:
        """Restores the newest whole checkpoint, all of it; returns whether there is one.

        Damaged ones are set aside with a warning, and so is that of the step `doubted` where there is one before it.
        One of another model raises UserError.
        """
        if self._writes:
            self._clear_remains()
        damaged: list[int] = []
        steps = saved_steps(self._directory)
        if doubted is not None and doubted in steps[1:]:
            logging.warning("%s is set aside as %s*: training diverged right after it again",
                            self._prefix(doubted), DIVERGED_PREFIX)  # fmt: skip
            steps.remove(doubted)
            if self._writes:
                self._set_aside([doubted], prefix=DIVERGED_PREFIX)
        for step in reversed(steps):
            try:
                self._checkpoint.read(str(self._prefix(step)), self._options).assert_consumed()
            except (AssertionError, ValueError) as error:
                raise UserError(
                    f"{self._prefix(step)} does not fit this model ({first_line(error)}); choose another --output_dir"
                ) from None
            except (tf.errors.OpError, IndexError, RuntimeError) as error:  # all of these come from its reader
                logging.warning("%s is damaged (%s); it is set aside as %s* and the checkpoint before it is used",
                                self._prefix(step), first_line(error), DAMAGED_PREFIX)  # fmt: skip
                damaged.append(step)
                continue
            if self._writes:
                self._set_aside(damaged, prefix=DAMAGED_PREFIX)
                self._point_to(step)
            self._in_force = step
            return True
        if damaged:
            raise UserError(
                f"all checkpoints in {self._directory} are damaged; restore one, or start again in another --output_dir"
            )
        return False

    def newest_step(self) -> int | None:
        """Returns the step of the newest checkpoint, or None where there is none."""
        steps = saved_steps(self._directory)
        return steps[-1] if steps else None

    def best(self, *, held_out: str | None = None) -> tuple[int, float] | None:
        """Returns step and held-out loss of the best checkpoint that is there, or None.

        `held_out`: only one that was found on these examples.
        """
        path = self._directory / BEST_FILE
        if not path.exists():
            return None
        best = read_json(path, what="note of the best checkpoint")
        if not self._index(best["step"]).exists() or held_out not in (None, best.get("held_out")):
            return None
        return best["step"], best["loss"]

    def note_evaluation(self, loss: float, *, held_out: str | None, is_done: bool = False) -> None:
        """Notes the held-out loss of the checkpoint in force, if it is the best on these examples; that one is kept.

        A run that goes on forgets the best on other examples. One that `is_done` was only looked at with them.
        """
        best = self.best(held_out=held_out)
        if best is None and is_done and self.best() is not None:
            return
        if self._writes and (best is None or best[0] == self._in_force or loss < best[1]):
            write_json(self._directory / BEST_FILE, {"step": self._in_force, "loss": loss, "held_out": held_out})

    def _prefix(self, step: int) -> Path:
        return self._directory / f"{CHECKPOINT_NAME}-{step}"

    def _index(self, step: int) -> Path:
        return self._prefix(step).with_name(f"{CHECKPOINT_NAME}-{step}.index")

    def _files(self, step: int) -> list[Path]:
        return sorted(self._directory.glob(f"{CHECKPOINT_NAME}-{step}.*"))

    def _point_to(self, step: int) -> None:
        """Writes TensorFlow's `checkpoint` file, from which other readers learn the newest."""
        names = [self._prefix(s).name for s in saved_steps(self._directory) if s <= step]
        point_to(self._directory, names)

    def _remove(self, step: int) -> None:
        self._index(step).unlink(missing_ok=True)  # first, so that the rest does not look whole
        for file in self._files(step):
            file.unlink()

    def _set_aside(self, steps: list[int], *, prefix: str) -> None:
        for step in steps:
            for file in self._files(step):
                os.replace(file, file.with_name(prefix + file.name))

    def _clear_remains(self) -> None:
        """Removes what a killed save or removal left: files of a step without index."""
        whole = set(saved_steps(self._directory))
        for path in self._directory.glob(f"{CHECKPOINT_NAME}-*"):
            match = _FILE.fullmatch(path.name)
            if match and int(match[1]) not in whole:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def saved_steps(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints in a run's directory, in order."""
    matches = (_FILE.fullmatch(path.name) for path in directory.glob(f"{CHECKPOINT_NAME}-*.index"))
    return sorted(int(match[1]) for match in matches if match)


def newest_in_words(step: int | None) -> str:
    """Returns what workers compare and may find different: the newest checkpoint, of `step`; 0 or None is none."""
    return f"checkpoints (here {f'of step {step}' if step else 'none'})"


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
