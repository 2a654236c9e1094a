"""The one training loop: an inner one of compiled steps, an outer one in Python.

The inner loop runs N steps in one `tf.function` over `strategy.run`. The outer one decides when to log, checkpoint and
evaluate. Pre-training and later tasks differ only in the model's heads, the batch and the `Objective`.
"""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import RunCheckpoints
from albert_tf.errors import UserError
from albert_tf.losses import LossFunction
from albert_tf.optimizers import AlbertOptimizer
from albert_tf.train_log import TrainLog

_AUTO_LOOP_SECONDS = 5.0

Batch = dict[str, tf.Tensor]


class Objective(NamedTuple):
    """A loss function with the names of its terms; the sum of those ending in `_loss` is minimised."""

    loss_fn: LossFunction
    metric_names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When the outer loop does what; `iterations_per_loop` None chooses calls of 2 to 10 seconds."""

    num_train_steps: int
    save_checkpoints_steps: int
    iterations_per_loop: int | None
    random_seed: int


class Interrupted(Exception):
    """Training was asked to stop by a signal and has saved its state."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped by signal {signal_number} at step {step}")
        self.signal_number = signal_number
        self.step = step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainee:
    """What training changes: the model with its variables by TF1 name, the optimizer, and the step."""

    model: Any
    variables: Mapping[str, tf.Variable]
    optimizer: AlbertOptimizer
    global_step: tf.Variable


def train_step(batch: Batch, *, trainee: Trainee, objective: Objective, random_seed: int) -> tf.Tensor:
    """Makes one update from this replica's slice of a global batch, in replica context.

    Every term is divided by the weight of the whole global batch, and gradients are summed over replicas, so that the
    update does not depend on how many there are. Returns float32 [2 * terms + 2], equal on all replicas: the sums and
    the weights of the terms over the global batch, learning rate and gradient norm.
    """
    context = tf.distribute.get_replica_context()
    rows = tf.shape(batch["input_ids"])[0]
    first_example = tf.cast(context.replica_id_in_sync_group, tf.int64) * tf.cast(rows, tf.int64)
    step = trainee.global_step.read_value()
    dropout_seed = tf.stack([tf.constant(random_seed, tf.int64), step, first_example])
    with tf.GradientTape() as tape:
        sums, weights = _terms(batch, trainee.model, objective, dropout_seed=dropout_seed)
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(tf.concat([sums, weights], 0)))
        loss = tf.reduce_sum(_loss_mask(objective) * tf.math.divide_no_nan(sums, totals[len(objective.metric_names) :]))
    gradients = tape.gradient(loss, list(trainee.variables.values()))
    applied = trainee.optimizer.apply(dict(zip(trainee.variables, gradients, strict=True)), step=step)
    trainee.global_step.assign_add(1)
    return tf.concat([totals, [applied["learning_rate"], applied["gradient_norm"]]], axis=0)


def evaluation_step(batch: Batch, *, model: Any, objective: Objective) -> tf.Tensor:
    """Returns float32 [2 * terms]: sums and weights of the terms over the global batch, without dropout."""
    sums, weights = _terms(batch, model, objective, dropout_seed=None)
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.concat([sums, weights], axis=0))


def train(
    trainee: Trainee,
    objective: Objective,
    make_dataset: Callable[[int], tf.data.Dataset],
    *,
    strategy: tf.distribute.Strategy,
    checkpoints: RunCheckpoints,
    evaluate: Callable[[], dict[str, float]] | None,
    log: TrainLog,
    settings: LoopSettings,
) -> None:
    """Trains from the current step to the last, with a checkpoint (and evaluation) at every interval and at the end.

    `make_dataset(step)` gives the global batches that follow `step`. Raises Interrupted after SIGINT or SIGTERM, with
    the state saved, and UserError where the loss or its gradient is not finite, with
    nothing saved.
    """
    run_steps = _compile_steps(trainee, objective, strategy=strategy, random_seed=settings.random_seed)
    step = int(trainee.global_step.numpy())
    batches = iter(strategy.experimental_distribute_dataset(make_dataset(step)))
    loop = _LoopLength(settings.iterations_per_loop)
    logging.info("Compiling the training step; the first progress line follows")
    with _stop_on_signals() as stop:
        while step < settings.num_train_steps:
            next_save = (step // settings.save_checkpoints_steps + 1) * settings.save_checkpoints_steps
            steps = min(loop.steps, next_save - step, settings.num_train_steps - step)
            began = time.monotonic()
            values = run_steps(batches, tf.constant(steps, tf.int64)).numpy()
            seconds = time.monotonic() - began
            step += steps
            metrics = _summarize(values, objective, steps=steps)
            if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["gradient_norm"])):
                raise UserError(
                    f"the loss or its gradient is not finite at step {step}; nothing was saved since the last "
                    "checkpoint. Lower --learning_rate or lengthen --num_warmup_steps"
                )
            metrics["tokens_per_second"] = _tokens(values, objective) / seconds
            metrics["steps_per_second"] = steps / seconds
            log.write("train", step, metrics)
            loop.adapt(steps, seconds)
            if step == next_save or step == settings.num_train_steps or stop:
                checkpoints.save()
                if evaluate and not stop:
                    log.write("eval", step, evaluate())
            if stop:
                raise Interrupted(stop[0], step)


def make_evaluator(
    model: Any, objective: Objective, make_dataset: Callable[[], tf.data.Dataset], *, strategy: tf.distribute.Strategy
) -> Callable[[], dict[str, float]]:
    """Returns a function that evaluates the model on all of a dataset and returns the means of the terms."""

    @tf.function
    def run_step(batch: Batch) -> tf.Tensor:
        per_replica = strategy.run(lambda b: evaluation_step(b, model=model, objective=objective), args=(batch,))
        return strategy.experimental_local_results(per_replica)[0]

    def evaluate() -> dict[str, float]:
        batches = strategy.experimental_distribute_dataset(make_dataset())
        totals = sum(run_step(batch).numpy().astype("float64") for batch in batches)
        return _summarize(totals, objective)

    return evaluate


def _terms(
    batch: Batch, model: Any, objective: Objective, *, dropout_seed: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums and the weights of the objective's terms on this replica, each [terms]."""
    terms = objective.loss_fn(model, batch, dropout_seed=dropout_seed)
    if set(terms) != set(objective.metric_names):
        raise RuntimeError(f"the loss function returned {sorted(terms)}, not {sorted(objective.metric_names)}")
    sums, weights = zip(*(terms[name] for name in objective.metric_names), strict=True)
    return tf.stack(sums), tf.stack(weights)


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


def _loss_mask(objective: Objective) -> tf.Tensor:
    return tf.constant([1.0 if name.endswith("_loss") else 0.0 for name in objective.metric_names])


def _compile_steps(
    trainee: Trainee, objective: Objective, *, strategy: tf.distribute.Strategy, random_seed: int
) -> Callable[[Iterator[Any], tf.Tensor], tf.Tensor]:
    """Returns the inner loop; its number of steps is a tensor, so that it is traced once."""

    def replica_step(batch: Batch) -> tf.Tensor:
        return train_step(batch, trainee=trainee, objective=objective, random_seed=random_seed)

    @tf.function
    def run_steps(batches: Iterator[Any], steps: tf.Tensor) -> tf.Tensor:
        totals = tf.zeros([2 * len(objective.metric_names) + 2])
        for _ in tf.range(steps):
            values = strategy.run(replica_step, args=(next(batches),))
            totals += strategy.experimental_local_results(values)[0]
        return totals

    return run_steps


def _summarize(values: Any, objective: Objective, *, steps: int | None = None) -> dict[str, float]:
    """Returns the mean of each term, their total as `loss`, and, in training, the means over steps of the rest."""
    count = len(objective.metric_names)
    means = {
        name: float(values[i] / values[count + i]) if values[count + i] else 0.0
        for i, name in enumerate(objective.metric_names)
    }
    loss = sum(value for name, value in means.items() if name.endswith("_loss"))
    rates = {}
    if steps is not None:
        rates = {"learning_rate": float(values[-2] / steps), "gradient_norm": float(values[-1] / steps)}
    return {"loss": loss, **means, **rates}


def _tokens(values: Any, objective: Objective) -> float:
    return float(values[objective.metric_names.index("tokens_per_example")])


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[list[int]]:
    """Yields a list that the first SIGINT or SIGTERM is appended to; a second one acts at once."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def remember(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, previous[number])
        logging.info("Stopping after this loop, with a checkpoint; once more to stop at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, remember)
    try:
        yield received
    finally:
        for caught, handler in previous.items():
            signal.signal(caught, handler)
