"""The one training loop: an inner one of compiled steps, an outer one in Python.

The inner loop runs N steps in one `tf.function` over `strategy.run`. The outer one decides when to log, checkpoint,
evaluate and roll back. Pre-training and later tasks differ only in the model's heads, the batch and the `Objective`.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.training.divergence import Divergence, DivergenceGuard
from albert_tf.training.kept_checkpoints import RunCheckpoints, newest_in_words
from albert_tf.training.log import TrainLog
from albert_tf.training.step import (
    Evaluator,
    Objective,
    Trainee,
    compile_train_steps,
    gradient_norms_of,
    losses_of,
    summarize,
)
from albert_tf.training.workers import Agreement

_AUTO_LOOP_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When the outer loop does what; `iterations_per_loop` None chooses calls of 2 to 10 seconds."""

    num_train_steps: int
    save_checkpoints_steps: int
    save_checkpoints_secs: float
    iterations_per_loop: int | None
    gradient_accumulation_steps: int
    random_seed: int
    profile_steps: int


class Interrupted(Exception):
    """Training was asked to stop; what it has done is saved."""

    def __init__(self, requests: Sequence[str], step: int) -> None:
        self.reason = requests[0] if requests else "another worker"
        self.step = step
        super().__init__(f"stopped by {self.reason} at step {step}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainLoop:
    """What the loop works with. `make_batches(n)` gives the distributed global batches that follow the n-th."""

    trainee: Trainee
    objective: Objective
    make_batches: Callable[[int], Iterable[Any]]
    strategy: tf.distribute.Strategy
    checkpoints: RunCheckpoints
    guard: DivergenceGuard
    evaluate: Evaluator | None
    held_out: str | None  # identifies the examples that it evaluates
    log: TrainLog
    settings: LoopSettings
    ideal_step_seconds: float  # of a step that would use the hardware fully

    def train(self, requests: Sequence[str] = ()) -> None:
        """Trains from the current step to the last.

        Saves and evaluates at every `save_checkpoints_steps` and at the end, and saves every `save_checkpoints_secs`.
        Raises Interrupted once `requests` holds a reason to stop, with the state saved, and UserError where training
        diverges too often.
        """
        settings = self.settings
        run_steps = compile_train_steps(
            self.trainee,
            self.objective,
            strategy=self.strategy,
            random_seed=settings.random_seed,
            accumulation_steps=settings.gradient_accumulation_steps,
        )
        agree, loop = self._agree, _LoopLength(settings.iterations_per_loop)
        step, steps, loops, last_save, batches = self.step, 1, 0, time.monotonic(), None
        logging.info("Compiling the training step; the first progress line follows")
        stop = self.must_stop(requests)
        while step < settings.num_train_steps and not stop:
            batches = batches or iter(self.make_batches(self.guard.data_step(step)))
            next_save = (step // settings.save_checkpoints_steps + 1) * settings.save_checkpoints_steps
            next_save = min(next_save, settings.num_train_steps)
            traced = settings.profile_steps if loops == 1 else 0  # the first loop compiles
            steps = min(traced or agree.chiefs(loop.steps), next_save - step)
            began = time.monotonic()
            with self.log.trace() if traced else contextlib.nullcontext():
                rows = run_steps(batches, tf.constant(steps, tf.int64)).numpy()
            loops += 1
            seconds = time.monotonic() - began
            diverged = self.guard.first_divergence(
                losses_of(rows, self.objective), gradient_norms_of(rows, self.objective)
            )
            if diverged:
                step, batches = self._roll_back(step, diverged), None
                stop = self.must_stop(requests)
                continue
            step += steps
            self.log.write("train", step, self._metrics(rows, seconds))
            loop.adapt(steps, seconds)
            stop = self.must_stop(requests)
            late = agree.chiefs(int(time.monotonic() - last_save >= settings.save_checkpoints_secs))
            if step == next_save or stop or late:
                self.save()
                last_save = time.monotonic()
            if step == next_save and not stop:
                stop = not self.evaluate_checkpoint(requests)
        if stop:
            raise Interrupted(requests, step)

    def save(self) -> None:
        """Saves a checkpoint of the current step."""
        self.trainee.state["recent_losses"].assign(self.guard.state())
        self.checkpoints.save()

    def evaluate_checkpoint(self, requests: Sequence[str] = ()) -> bool:
        """Evaluates the weights of the checkpoint in force and writes the result down.

        Returns whether that was done; a request to stop ends it before.
        """
        if self.evaluate is None:
            return True
        metrics = self.evaluate(lambda: self.must_stop(requests))
        if metrics is None:
            return False
        self.log.write("eval", self.step, metrics, held_out=self.held_out)
        is_done = self.step >= self.settings.num_train_steps
        self.checkpoints.note_evaluation(metrics["loss"], held_out=self.held_out, is_done=is_done)
        return True

    def must_stop(self, requests: Sequence[str]) -> bool:
        """Returns whether any worker has a request to stop."""
        return self._agree.any(bool(requests))

    def evaluation(self) -> dict[str, Any] | None:
        """Returns what was written down of the current step and these held-out examples, or None."""
        return self.log.last("eval", self.step, held_out=self.held_out)

    def evaluation_is_missing(self) -> bool:
        """Returns whether the chief, which wrote them, finds no evaluation of the current step."""
        # Another worker may look before the line is written, or see the chief's files late.
        return bool(self._agree.chiefs(int(self.evaluation() is None)))

    @functools.cached_property
    def _agree(self) -> Agreement:
        return Agreement(self.strategy)

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.trainee.global_step.numpy())

    def _roll_back(self, step: int, diverged: Divergence) -> int:
        """Goes back to a checkpoint; returns its step. The data in between will be skipped."""
        diverged_step = step + diverged.good_steps + 1
        newest = self.checkpoints.newest_step()
        self._agree.check_equal(newest or 0, what=newest_in_words(newest))  # before one of them ends
        self.guard.check_rollback_allowed(diverged_step, reason=diverged.reason, newest_step=newest)
        doubted = newest if self.guard.doubts_checkpoint(newest, diverged_step=diverged_step) else None
        self.checkpoints.restore_latest(doubted=doubted)
        restored = self.step
        self._agree.check_equal(restored, what=newest_in_words(restored))
        self.guard.note_rollback(diverged_step, reason=diverged.reason, restored_step=restored)
        self.guard.set_state(self.trainee.state["recent_losses"].numpy())
        self.log.cut_back(restored)
        logging.warning("%s at step %d: going on from the checkpoint of step %d with the data after step %d",
                        diverged.reason, diverged_step, restored, diverged_step)  # fmt: skip
        return restored

    def _metrics(self, rows: np.ndarray, seconds: float) -> dict[str, float]:
        metrics = summarize(rows, self.objective)
        tokens = float(rows[:, self.objective.metric_names.index("tokens_per_example")].sum())
        return {
            **metrics,
            "tokens_per_second": tokens / seconds,
            "steps_per_second": len(rows) / seconds,
            "utilisation": len(rows) * self.ideal_step_seconds / seconds,
            "data_wait": float(rows[:, -1].sum()) / seconds,
        }


class _LoopLength:
    """How many steps the next call of the inner loop makes: a fixed number, or what takes about five seconds."""

    def __init__(self, fixed: int | None) -> None:
        self.steps = fixed or 1
        self._fixed = fixed is not None
        self._compiled = False

    def adapt(self, steps: int, seconds: float) -> None:
        """Learns from a call that made `steps` steps; the first one's time is mostly compilation."""
        if self._fixed:
            return
        self.steps = max(1, round(_AUTO_LOOP_SECONDS * steps / seconds)) if self._compiled else 2
        self._compiled = True
