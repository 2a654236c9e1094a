"""Dropout as a function of the training step and of each example's place in the global batch.

So a run on N replicas, in micro-batches, or a resumed one, draws the masks of an uninterrupted run on one device.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.model import fused_ops

_PHILOX = 1  # tf.random.Algorithm.PHILOX; it makes 4 words of 32 bits for each value of its counter


@dataclasses.dataclass(frozen=True)
class Draw:
    """What the random numbers of one forward pass are a function of, beside their site; int64 scalars.

    `first_example` is the place of the batch's first example in the global batch. A model that makes several rows of
    an example (multiple choice) says how many, so that a row has its place in the global batch too.
    """

    seed: tf.Tensor | int  # of the run
    step: tf.Tensor | int
    first_example: tf.Tensor | int
    rows_per_example: tf.Tensor | int = 1

    def after(self, examples: tf.Tensor) -> "Draw":
        """Returns the draw of the part of a batch that begins behind this number of examples."""
        return dataclasses.replace(self, first_example=self.first_example + tf.cast(examples, tf.int64))


@keras.saving.register_keras_serializable(package="albert_tf")
class SeededDropout(keras.layers.Layer):
    """Dropout whose mask is a function of (run seed, step, call site, place of the row in the global batch).

    Without a `draw` it is the Keras one (`model.fit` on one device).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(
        self, inputs: tf.Tensor, *, site: int = 0, draw: Draw | None = None, training: bool | None = None
    ) -> tf.Tensor:
        """Drops entries of `inputs` [batch, ...]; arguments as of `kept`."""
        kept = self.kept(tf.shape(inputs), site=site, draw=draw, training=training)
        if kept is None:
            return inputs
        return fused_ops.drop(inputs, kept, keep_prob=self.keep_prob, training=training)

    def kept(self, shape: tf.Tensor, *, site: int, draw: Draw | None, training: bool | None) -> tf.Tensor | None:
        """Returns the mask, bool of `shape`, of the entries that are kept; None where nothing is dropped.

        `site` numbers the calls of one forward pass, since a shared layer is called at every depth.
        """
        if not training or not self.rate:
            return None
        if draw is None:
            return keras.random.uniform(shape, seed=self.seed_generator) < self.keep_prob
        kept = _keep_mask(shape, keep_prob=self.keep_prob, site=site, draw=draw)
        return tf.reshape(kept, shape)

    @property
    def keep_prob(self) -> float:
        """Share of the entries that are kept."""
        return 1.0 - self.rate

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}


def _keep_mask(shape: tf.Tensor, *, keep_prob: float, site: int, draw: Draw) -> tf.Tensor:
    """Returns bool [rows, entries of a row]: a slice of the mask that the whole global batch would have."""
    numbers = (draw.seed, draw.step, draw.first_example, draw.rows_per_example)
    seed, step, first_example, rows_per_example = (tf.cast(number, tf.uint64) for number in numbers)
    entries = tf.reduce_prod(shape[1:])
    counters_per_row = (entries + 3) // 4
    low = first_example * rows_per_example * tf.cast(counters_per_row, tf.uint64)
    high = step * tf.constant(2**16, tf.uint64) + tf.constant(site, tf.uint64)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([shape[0], 4 * counters_per_row]),
        key=seed[None],
        counter=tf.stack([low, high]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    threshold = np.uint32(min(round(keep_prob * 2**32), 2**32 - 1))
    return bits[:, :entries] < threshold


def block_site(depth: int, place: int) -> int:
    """Numbers the dropout calls of a forward pass; 0 is the embeddings'."""
    return 1 + 3 * depth + place


def site_after(depth: int) -> int:
    """Returns the first number for dropout calls that follow those of `depth` blocks."""
    return block_site(depth, 0)
