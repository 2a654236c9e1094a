"""One update of the weights, one evaluation step, and how they are compiled for a strategy.

Every term of a loss is divided by its weight over the whole global batch, summed over replicas and micro-batches, so
that an update does not depend on how many there are of either.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.model.dropout import Draw
from albert_tf.training.divergence import STATE_SIZE
from albert_tf.training.losses import LossFunction
from albert_tf.training.optimizers import STATISTICS, AlbertOptimizer

Batch = dict[str, tf.Tensor]
Evaluator = Callable[[Callable[[], bool]], dict[str, float] | None]


class Objective(NamedTuple):
    """A loss function with the names of its terms; the sum of those ending in `_loss` is minimised."""

    loss_fn: LossFunction
    metric_names: tuple[str, ...]

    @property
    def loss_mask(self) -> tuple[float, ...]:
        """1 for the terms that are minimised, 0 for the rest."""
        return tuple(1.0 if name.endswith("_loss") else 0.0 for name in self.metric_names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainee:
    """What training changes: the model with its variables by TF1 name, the optimizer, and the state.

    `state` is what a checkpoint holds beside them: `global_step`, and `recent_losses`, which the rule on divergence
    looks back on.
    """

    model: Any
    variables: Mapping[str, tf.Variable]
    optimizer: AlbertOptimizer
    state: Mapping[str, tf.Variable]

    @classmethod
    def create(cls, model: Any, variables: Mapping[str, tf.Variable], optimizer: AlbertOptimizer) -> "Trainee":
        """Returns a trainee at step 0; call it under the strategy of the variables."""
        once = {"trainable": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
        state = {
            "global_step": tf.Variable(0, dtype=tf.int64, name="global_step", **once),
            "recent_losses": tf.Variable(tf.fill([STATE_SIZE], float("nan")), name="recent_losses", **once),
        }
        return cls(model=model, variables=variables, optimizer=optimizer, state=state)

    @property
    def global_step(self) -> tf.Variable:
        """The number of updates made."""
        return self.state["global_step"]


def train_step(
    batch: Batch, *, trainee: Trainee, objective: Objective, random_seed: int, accumulation_steps: int = 1
) -> tf.Tensor:
    """Makes one update from this replica's slice of a global batch, in replica context.

    The slice is worked through in `accumulation_steps` micro-batches. Returns float32 [2 * terms + statistics], equal
    on all replicas: the sums and the weights of the terms over the global batch, then the optimizer's STATISTICS.
    """
    context = tf.distribute.get_replica_context()
    rows = batch["input_ids"].shape[0]
    first_example = tf.cast(context.replica_id_in_sync_group, tf.int64) * rows
    step = trainee.global_step.read_value()
    draw = Draw(tf.constant(random_seed, tf.int64), step, first_example)
    if accumulation_steps > 1:
        gradients, totals = _accumulated_gradients(batch, trainee, objective, draw=draw, parts=accumulation_steps)
    else:
        gradients, totals = _gradients(batch, trainee, objective, draw=draw)
    applied = trainee.optimizer.apply(dict(zip(trainee.variables, gradients, strict=True)), step=step)
    trainee.global_step.assign_add(1)
    return tf.concat([totals, [applied[name] for name in STATISTICS]], axis=0)


def _gradients(batch: Batch, trainee: Trainee, objective: Objective, *, draw: Draw) -> tuple[list[Any], tf.Tensor]:
    """Returns this replica's share of the gradients, and the sums and weights of the terms over the global batch."""
    with tf.GradientTape() as tape:
        sums, weights = _terms(batch, trainee.model, objective, draw=draw)
        totals = _sum_over_replicas(tf.concat([sums, weights], axis=0))
        loss = _loss(sums, totals[len(objective.metric_names) :], objective)
    return tape.gradient(loss, list(trainee.variables.values())), totals


def _accumulated_gradients(
    batch: Batch, trainee: Trainee, objective: Objective, *, draw: Draw, parts: int
) -> tuple[list[Any], tf.Tensor]:
    """As `_gradients`, with the activations of one of `parts` micro-batches in memory at a time."""
    variables = list(trainee.variables.values())
    rows = batch["input_ids"].shape[0] // parts
    # The denominators come first. They do not need the model, so that the graph's forward pass here is pruned.
    _, weights = _terms(batch, trainee.model, objective, draw=draw)
    weights = _sum_over_replicas(weights)
    used = [True] * len(variables)

    def add_part(part: tf.Tensor, sums: tf.Tensor, *gradients: tf.Tensor) -> tuple[tf.Tensor, ...]:
        start = part * rows
        micro_batch = {
            name: tf.ensure_shape(t[start : start + rows], [rows, *t.shape[1:]]) for name, t in batch.items()
        }
        with tf.GradientTape() as tape:
            added, _ = _terms(micro_batch, trainee.model, objective, draw=draw.after(start))
            loss = _loss(added, weights, objective)
        new = tape.gradient(loss, variables)
        used[:] = [gradient is not None for gradient in new]
        summed = [old if g is None else old + tf.convert_to_tensor(g) for old, g in zip(gradients, new, strict=True)]
        return (part + 1, sums + added, *summed)

    start = (tf.constant(0), tf.zeros_like(weights), *(tf.zeros(v.shape) for v in variables))
    # One at a time: the iterations depend on each other only through the sums.
    _, sums, *gradients = tf.while_loop(
        lambda part, *_: part < parts, add_part, start, maximum_iterations=parts, parallel_iterations=1
    )
    totals = tf.concat([_sum_over_replicas(sums), weights], axis=0)
    return [gradient if is_used else None for gradient, is_used in zip(gradients, used, strict=True)], totals


def evaluation_step(batch: Batch, *, model: Any, objective: Objective) -> tf.Tensor:
    """Returns float32 [2 * terms]: sums and weights of the terms over the global batch, without dropout."""
    return _sum_over_replicas(tf.concat(_terms(batch, model, objective, draw=None), axis=0))


def _terms(batch: Batch, model: Any, objective: Objective, *, draw: Draw | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums and the weights of the objective's terms on this replica, each [terms]."""
    terms = objective.loss_fn(model, batch, draw=draw)
    if set(terms) != set(objective.metric_names):
        raise RuntimeError(f"the loss function returned {sorted(terms)}, not {sorted(objective.metric_names)}")
    sums, weights = zip(*(terms[name] for name in objective.metric_names), strict=True)
    return tf.stack(sums), tf.stack(weights)


def _loss(sums: tf.Tensor, weights: tf.Tensor, objective: Objective) -> tf.Tensor:
    return tf.reduce_sum(tf.constant(objective.loss_mask) * tf.math.divide_no_nan(sums, weights))


def _sum_over_replicas(values: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(values))


def compile_train_steps(
    trainee: Trainee,
    objective: Objective,
    *,
    strategy: tf.distribute.Strategy,
    random_seed: int,
    accumulation_steps: int,
) -> Callable[[Iterator[Any], tf.Tensor], tf.Tensor]:
    """Returns the inner loop: `run(batches, steps)` makes int64 `steps` updates in one call.

    It returns a row for each step, float32 [steps, 2 * terms + statistics + 1]: what `train_step` returns, and the
    seconds that the step waited for its data. The number of steps is a tensor, so that the loop is traced once.
    """

    def replica_step(batch: Batch, waited: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([waited]):  # the step begins when the clock has stopped
            return train_step(
                batch,
                trainee=trainee,
                objective=objective,
                random_seed=random_seed,
                accumulation_steps=accumulation_steps,
            )

    @tf.function
    def run_steps(batches: Iterator[Any], steps: tf.Tensor) -> tf.Tensor:
        width = 2 * len(objective.metric_names) + len(STATISTICS) + 1
        rows = tf.TensorArray(tf.float32, size=tf.cast(steps, tf.int32), element_shape=[width])
        last = tf.zeros([width])
        for index in tf.range(tf.cast(steps, tf.int32)):
            with tf.control_dependencies([last]):  # the clock starts when the step before is done
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                batch = next(batches)
            with tf.control_dependencies(_local_tensors(batch, strategy)):
                waited = tf.cast(tf.timestamp() - began, tf.float32)
            values = strategy.run(replica_step, args=(batch, waited))
            last = tf.concat([strategy.experimental_local_results(values)[0], [waited]], axis=0)
            rows = rows.write(index, last)
        return rows.stack()

    return run_steps


def _local_tensors(batch: Any, strategy: tf.distribute.Strategy) -> list[tf.Tensor]:
    return tf.nest.flatten([strategy.experimental_local_results(value) for value in batch.values()])


def losses_of(rows: np.ndarray, objective: Objective) -> np.ndarray:
    """Returns the minimised loss of each step, float64 [steps], from the rows of the inner loop."""
    count = len(objective.metric_names)
    sums, weights = rows[:, :count].astype(np.float64), rows[:, count : 2 * count].astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity / infinity: the guard against divergence sees that it is no number
        means = np.divide(sums, weights, out=np.zeros_like(sums), where=weights != 0)
        return means @ np.array(objective.loss_mask)


def gradient_norms_of(rows: np.ndarray, objective: Objective) -> np.ndarray:
    """Returns the gradient norm of each step, float32 [steps], from the rows of the inner loop."""
    return rows[:, 2 * len(objective.metric_names) + STATISTICS.index("gradient_norm")]


def summarize(rows: np.ndarray, objective: Objective) -> dict[str, float]:
    """Returns the mean of each term over the rows of a loop, or of an evaluation, and their total as `loss`.

    For training rows the newest value of each of the optimizer's STATISTICS is added.
    """
    count = len(objective.metric_names)
    totals = rows.sum(axis=0, dtype=np.float64)
    means = {
        name: float(totals[i] / totals[count + i]) if totals[count + i] else 0.0
        for i, name in enumerate(objective.metric_names)
    }
    loss = sum(value for name, value in means.items() if name.endswith("_loss"))
    statistics = dict(zip(STATISTICS, map(float, rows[-1, 2 * count :]), strict=False))
    return {"loss": loss, **means, **{name: value for name, value in statistics.items() if not np.isnan(value)}}


def make_evaluator(
    model: Any,
    objective: Objective,
    *,
    make_dataset: Callable[[], Any],
    strategy: tf.distribute.Strategy,
) -> Evaluator:
    """Returns a function that evaluates the model on all of a distributed dataset and returns the terms' means.

    It asks its argument before each batch whether to stop, and then returns None.
    """

    @tf.function
    def run_step(batch: Batch) -> tf.Tensor:
        per_replica = strategy.run(lambda b: evaluation_step(b, model=model, objective=objective), args=(batch,))
        return strategy.experimental_local_results(per_replica)[0]

    def evaluate(is_stopped: Callable[[], bool]) -> dict[str, float] | None:
        rows = []
        for batch in make_dataset():
            if is_stopped():
                return None
            rows.append(run_step(batch).numpy())
        return summarize(np.stack(rows), objective)

    return evaluate
