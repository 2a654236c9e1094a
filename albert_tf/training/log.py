"""What a run shows and leaves to look at: progress lines, metrics.jsonl and TensorBoard scalars."""

import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.errors import UserError
from albert_tf.files import whole_file
from albert_tf.records.framing import read_records_with_ends

METRICS_FILE = "metrics.jsonl"

# Shown in progress lines, in this order and under these short names.
_SHORT_NAMES = {
    "loss": "loss",
    "masked_lm_loss": "mlm",
    "masked_lm_accuracy": "mlm_acc",
    "masked_lm_unigram_cross_entropy": "unigram",
    "sentence_order_loss": "sop",
    "sentence_order_accuracy": "sop_acc",
    "learning_rate": "lr",
    "gradient_norm": "grad_norm",
}


class TrainLog:
    """Writes the metrics of a run; lines of steps after `start_step` are dropped, since they will be made again."""

    def __init__(self, directory: Path, *, start_step: int, num_train_steps: int, writes: bool = True) -> None:
        self._path = directory / METRICS_FILE
        self._tensorboard = directory / "tensorboard"
        self._trace = directory / "profile"
        self._num_train_steps = num_train_steps
        self._writes = writes
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._timed_from: tuple[int, float] | None = None  # step and time of the first line, after compilation
        self.cut_back(start_step)

    def cut_back(self, step: int) -> None:
        """Drops what was written of later steps, from metrics and from TensorBoard."""
        if not self._writes:
            return
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        kept = [entry for entry in self._entries() if entry["step"] <= step]
        with whole_file(self._path) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")
        # Events are written before their line: those after the last line of their split belong to a line that a kill
        # prevented, and are made again with it.
        last = {entry["split"]: entry["step"] for entry in kept}
        for file in sorted(self._tensorboard.glob("*/events.out.tfevents.*")):
            _cut_events(file, last.get(file.parent.name, 0))

    @contextlib.contextmanager
    def trace(self) -> Iterator[None]:
        """Writes what TensorFlow executes meanwhile as a trace that TensorBoard's profiler shows."""
        if not self._writes:
            yield
            return
        with tf.profiler.experimental.Profile(str(self._trace)):
            yield
        logging.info("A trace of these steps is in %s: tensorboard --logdir=%s", self._trace, self._trace)

    def write(self, split: str, step: int, metrics: Mapping[str, float], *, held_out: str | None = None) -> None:
        """Records metrics of `step`, with what they were measured on, and shows them on one line."""
        if not self._writes:
            return
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self._tensorboard / split))
        writer = self._writers[split]
        with writer.as_default():
            for name, value in metrics.items():
                tf.summary.scalar(name, value, step=step)
        writer.flush()
        with open(self._path, "a", encoding="utf-8") as stream:
            source = {"held_out": held_out} if held_out else {}
            stream.write(json.dumps({"split": split, "step": step, **metrics, **source}) + "\n")
        shown = [f"{short} {metrics[name]:.4g}" for name, short in _SHORT_NAMES.items() if name in metrics]
        if split == "train":
            shown += [f"{metrics['tokens_per_second']:,.0f} tokens/s", f"utilisation {metrics['utilisation']:.0%}"]
            shown += [f"data wait {metrics['data_wait']:.1%}", f"ETA {self._eta(step)}"]
        progress = f"step {step:,}/{self._num_train_steps:,} ({100 * step / self._num_train_steps:.0f} %)"
        logging.info("%s %s  %s", "held-out at" if split == "eval" else "train", progress, "  ".join(shown))

    def last(self, split: str, step: int, *, held_out: str | None = None) -> dict[str, Any] | None:
        """Returns the newest metrics of a split at `step`, from this start of the run or an earlier one.

        `held_out`: only those that were measured on it.
        """
        entries = [entry for entry in self._entries() if entry["split"] == split and entry["step"] == step]
        if held_out is not None:
            entries = [entry for entry in entries if entry.get("held_out") == held_out]
        return entries[-1] if entries else None

    def median(self, split: str, name: str) -> float | None:
        """Returns the median of a metric over all lines of a split."""
        values = [entry[name] for entry in self._entries() if entry["split"] == split]
        return statistics.median(values) if values else None

    def _entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in _complete_lines(self._path)]

    def _eta(self, step: int) -> str:
        if self._timed_from is None or step <= self._timed_from[0]:
            self._timed_from = (step, time.monotonic())
            return "?"
        first_step, began = self._timed_from
        seconds = (time.monotonic() - began) / (step - first_step) * (self._num_train_steps - step)
        hours, rest = divmod(int(seconds), 3600)
        return f"{hours}h{rest // 60:02d}m" if hours else f"{rest // 60}m{rest % 60:02d}s"


def _complete_lines(path: Path) -> list[str]:
    """Returns the lines of a metrics file; one that a crash cut short is left out."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").split("\n")[:-1] if line.endswith("}")]


def _cut_events(path: Path, step: int) -> None:
    """Cuts a TensorBoard file before its first event of a later step, or before an event that a crash cut short."""
    end = 0
    try:
        for record, after in read_records_with_ends(path):
            if tf.compat.v1.Event.FromString(record).step > step:
                break
            end = after
    except UserError:
        pass  # the rest is cut
    if end < path.stat().st_size:
        os.truncate(path, end)
