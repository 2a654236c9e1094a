"""LAMB and AdamW as ALBERT defines them, with warm-up and polynomial decay (TF1 optimization.py, lamb_optimizer.py).

They differ from `keras.optimizers.Lamb` and `AdamW`: no bias correction; weight decay is part of the update, and so of
LAMB's trust ratio; LayerNorm and bias variables have neither decay nor trust ratio. Gradients are summed over replicas
before they are clipped, so that N replicas take the step of one.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0

# What an update reports of itself, over the variables that are decayed. A trust ratio is |weights| / |direction| (LAMB;
# NaN for AdamW), an update ratio |change| / |weights|.
STATISTICS = (
    "learning_rate", "gradient_norm", "trust_ratio_min", "trust_ratio_median", "trust_ratio_max",
    "update_ratio_min", "update_ratio_median", "update_ratio_max",
)  # fmt: skip

_NOT_DECAYED = re.compile(r"LayerNorm|layer_norm|bias")


class LearningRateSchedule:
    """Linear warm-up, then polynomial decay to 0 that counts from step 0, so that warm-up ends in a small drop."""

    def __init__(
        self,
        peak: float,
        *,
        num_train_steps: int,
        num_warmup_steps: int,
        power: float = 1.0,
        start_warmup_step: int = 0,
    ) -> None:
        self._peak = peak
        self._num_train_steps = num_train_steps
        self._num_warmup_steps = num_warmup_steps
        self._power = power
        self._start_warmup_step = start_warmup_step

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the float32 rate of the update that is made when `step` updates have been made; the first has 0."""
        step = tf.cast(step, tf.float32)
        progress = tf.minimum(step, self._num_train_steps) / self._num_train_steps
        rate = self._peak * tf.pow(1.0 - progress, self._power)
        if self._num_warmup_steps:
            done = (step - self._start_warmup_step) / self._num_warmup_steps
            # Before start_warmup_step the original's rate is negative; here it is 0.
            rate = tf.where(done < 1.0, self._peak * tf.maximum(0.0, done), rate)
        return rate


class AlbertOptimizer(tf.Module):
    """LAMB, or AdamW, over variables that are known by their TF1 names.

    `slots` holds both moments as `<variable>/adam_m` and `<variable>/adam_v`, the original's names for both optimizers.
    Create it under the strategy of the variables.
    """

    def __init__(self, kind: str, variables: Mapping[str, tf.Variable], *, schedule: LearningRateSchedule) -> None:
        super().__init__(name="optimizer")
        if kind not in ("lamb", "adamw"):
            raise ValueError(f"the optimizer must be lamb or adamw; received {kind!r}")
        self._kind = kind
        self._variables = dict(variables)
        self.schedule = schedule
        self.slots: dict[str, tf.Variable] = {}
        for name, variable in variables.items():
            with tf.distribute.get_strategy().extended.colocate_vars_with(variable):
                for moment in ("adam_m", "adam_v"):
                    zeros = tf.zeros(variable.shape, tf.float32)
                    self.slots[f"{name}/{moment}"] = tf.Variable(zeros, trainable=False, name=f"{name}/{moment}")

    def apply(self, gradients: Mapping[str, tf.Tensor | None], *, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the variables by this replica's share of each gradient; returns the STATISTICS of the update.

        Call it in replica context. `step` counts the updates made before; the norm is that of the summed gradients,
        before clipping. A variable whose gradient is None does not take part in the loss and stays as it is.
        """
        names = [name for name in self._variables if gradients[name] is not None]
        # A norm over IndexedSlices would count repeated rows apart.
        dense = [tf.convert_to_tensor(gradients[name]) for name in names]
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        norm = tf.linalg.global_norm(summed)
        # As tf.clip_by_global_norm; the product with it is part of the update's one pass.
        scale = tf.minimum(CLIP_NORM / norm, 1.0) + (norm - norm)  # NaN where the norm is not finite
        rate = self.schedule(step)
        ratios = context.merge_call(self._update_all, args=(dict(zip(names, summed, strict=True)), rate, scale))
        spread = tf.sort(tf.stack(ratios), axis=0)
        statistics = [rate, norm, spread[0, 0], spread[len(ratios) // 2, 0], spread[-1, 0]]
        statistics += [spread[0, 1], spread[len(ratios) // 2, 1], spread[-1, 1]]
        return dict(zip(STATISTICS, statistics, strict=True))

    def _update_all(
        self, strategy: tf.distribute.Strategy, gradients: dict[str, Any], rate: Any, scale: Any
    ) -> list[tf.Tensor]:
        """Updates every variable; returns trust ratio and update ratio [2] of those that are decayed."""
        ratios = []
        for name, gradient in gradients.items():
            variable = self._variables[name]
            slots = (self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"])
            decayed = _NOT_DECAYED.search(name) is None
            on_devices = strategy.extended.update(
                variable, self._update, args=(gradient, *slots, rate, scale), kwargs={"decayed": decayed}, group=False
            )
            if decayed:
                ratios.append(on_devices[0])
        return ratios

    def _update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        m: tf.Variable,
        v: tf.Variable,
        rate: Any,
        scale: Any,
        *,
        decayed: bool,
    ) -> tf.Tensor:
        """Updates one variable on one device; returns its trust ratio and its update ratio, float32 [2]."""
        values = map(tf.convert_to_tensor, (variable, gradient, m, v, rate, scale))
        new, ratios = _updated(*values, decayed=decayed, lamb=self._kind == "lamb")
        for target, value in zip((variable, m, v), new, strict=True):
            target.assign(value)
        return ratios


@functools.partial(tf.function, jit_compile=True, autograph=False)  # a few passes over memory instead of a dozen
def _updated(
    variable: tf.Tensor,
    gradient: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    rate: tf.Tensor,
    scale: tf.Tensor,
    *,
    decayed: bool,
    lamb: bool,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns new values of the variable and its moments, and trust ratio and update ratio, float32 [2].

    The direction is m / (sqrt(v) + epsilon), with decay; no bias correction.
    """
    gradient *= scale
    m = BETA_1 * m + (1.0 - BETA_1) * gradient
    v = BETA_2 * v + (1.0 - BETA_2) * tf.square(gradient)
    direction = m / (tf.sqrt(v) + EPSILON)
    if not decayed:
        return [variable - rate * direction, m, v], tf.constant([1.0, 0.0])
    direction += WEIGHT_DECAY_RATE * variable
    weight_norm, direction_norm = _norm(variable), _norm(direction)
    trust_ratio = tf.constant(float("nan"))
    size = rate * direction_norm
    if lamb:
        usable = (weight_norm > 0.0) & (direction_norm > 0.0)
        trust_ratio = tf.where(usable, tf.math.divide_no_nan(weight_norm, direction_norm), 1.0)
        size *= trust_ratio
        direction *= trust_ratio
    return [variable - rate * direction, m, v], tf.stack([trust_ratio, tf.math.divide_no_nan(size, weight_norm)])


def _norm(x: tf.Tensor) -> tf.Tensor:
    """Returns the Euclidean norm; XLA adds up rows by a product several times as fast as by a reduction."""
    squares = tf.reshape(tf.square(x), [-1, x.shape[-1]])
    return tf.sqrt(tf.reduce_sum(tf.matmul(squares, tf.ones([x.shape[-1], 1]))))
