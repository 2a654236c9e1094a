"""When training has diverged, and where it goes on: a rule on a running median, and which data is skipped.

A step has diverged if its loss or gradient norm is not finite, or if the median of the NEWEST losses up to it is more
than `max_loss_jump` times the median of the WINDOW losses before those, and at least MIN_JUMP nats above it. The rule
sees the loss of every step, so that it does not depend on how the steps are grouped into loops.
"""

import collections
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import read_json, write_json

WINDOW, NEWEST = 128, 8
MIN_KNOWN = 32  # losses before the newest, below which nothing is called a jump
MIN_JUMP = 0.5
STATE_SIZE = WINDOW + NEWEST
ROLLBACKS_FILE = "rollbacks.json"


class Divergence(NamedTuple):
    """The number of good steps before the first that has diverged, and what was seen."""

    good_steps: int
    reason: str


class DivergenceGuard:
    """Watches the losses of a run, and keeps what was skipped in `rollbacks.json`, so that it survives a kill."""

    def __init__(
        self, directory: Path, *, max_loss_jump: float, max_rollbacks: int, step: int, writes: bool = True
    ) -> None:
        self._path = directory / ROLLBACKS_FILE
        self._max_loss_jump = max_loss_jump
        self._max_rollbacks = max_rollbacks
        self._writes = writes
        self._losses: collections.deque[float] = collections.deque(maxlen=STATE_SIZE)
        if not step and writes:
            self._path.unlink(missing_ok=True)  # of a run whose checkpoints were deleted
        recorded = read_json(self._path, what="record of rollbacks") if self._path.exists() and step else []
        # In order of time; those after the last one that led to `step` or before it are undone.
        while recorded and recorded[-1]["restored_step"] > step:
            recorded.pop()
        self._rollbacks: list[dict[str, Any]] = recorded

    def state(self) -> np.ndarray:
        """Returns the losses that the rule looks back on, float32 [STATE_SIZE], to stand in the checkpoint."""
        known = np.array(self._losses, np.float32)
        return np.concatenate([np.full(STATE_SIZE - len(known), np.nan, np.float32), known])

    def set_state(self, state: np.ndarray) -> None:
        """Goes back to a state."""
        self._losses.clear()
        self._losses.extend(map(float, state[~np.isnan(state)]))

    def first_divergence(self, losses: Iterable[float], gradient_norms: Iterable[float]) -> Divergence | None:
        """Takes the losses and gradient norms of the next steps; returns the first that has diverged, or None."""
        for good_steps, (loss, norm) in enumerate(zip(losses, gradient_norms, strict=True)):
            if not math.isfinite(loss) or not math.isfinite(norm):
                return Divergence(good_steps, "the loss or its gradient is not finite")
            self._losses.append(float(np.float32(loss)))
            newest, before = list(self._losses)[-NEWEST:], list(self._losses)[:-NEWEST]
            if not self._max_loss_jump or len(before) < MIN_KNOWN:
                continue
            usual, now = statistics.median(before), statistics.median(newest)
            if now > self._max_loss_jump * usual and now > usual + MIN_JUMP:
                return Divergence(good_steps, f"the loss has jumped from {usual:.3g} to {now:.3g} (medians)")
        return None

    def data_step(self, step: int) -> int:
        """Returns the number of global batches that lie before the one of `step`, the skipped ones included."""
        return step + sum(entry["diverged_step"] - entry["restored_step"] for entry in self._rollbacks)

    def doubts_checkpoint(self, restored_step: int | None, *, diverged_step: int) -> bool:
        """Returns whether the run was restored from this checkpoint before, and has diverged from it at once again.

        It may have been saved between the first bad losses and the verdict, which takes half of the NEWEST.
        """
        if restored_step is None or not self._rollbacks:
            return False
        return restored_step == self._rollbacks[-1]["restored_step"] and diverged_step - restored_step <= NEWEST

    def check_rollback_allowed(self, diverged_step: int, *, reason: str, newest_step: int | None) -> None:
        """Raises UserError where the run has no checkpoint to go back to, or has gone back often enough."""
        advice = "Lower --learning_rate or lengthen --num_warmup_steps, in another --output_dir"
        if newest_step is None:
            raise UserError(f"{reason} at step {diverged_step}, before the first checkpoint. {advice}")
        if len(self._rollbacks) >= self._max_rollbacks:
            raise UserError(
                f"{reason} at step {diverged_step}, after as many rollbacks as --max_rollbacks="
                f"{self._max_rollbacks} allows; the newest checkpoint is of step {newest_step}. {advice}; or raise "
                "--max_rollbacks"
            )

    def note_rollback(self, diverged_step: int, *, reason: str, restored_step: int) -> None:
        """Records that the run goes on from `restored_step` with the data after `diverged_step`."""
        self._rollbacks.append({"diverged_step": diverged_step, "restored_step": restored_step, "reason": reason})
        if self._writes:
            write_json(self._path, self._rollbacks)
