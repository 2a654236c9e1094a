"""Dropout as a function of the training step and of each example's place in the global batch.

So a run on N replicas, or a resumed one, draws the masks of an uninterrupted run on one device.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.model import fused_ops

_PHILOX = 1  # tf.random.Algorithm.PHILOX; it makes 4 words of 32 bits for each value of its counter


@keras.saving.register_keras_serializable(package="albert_tf")
class SeededDropout(keras.layers.Layer):
    """Dropout whose mask is a function of (run seed, step, call site, index of the example in the global batch).

    Without a `dropout_seed` it is the Keras one (`model.fit` on one device).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(
        self, inputs: tf.Tensor, *, site: int = 0, dropout_seed: tf.Tensor | None = None, training: bool | None = None
    ) -> tf.Tensor:
        """Drops entries of `inputs` [batch, ...]; arguments as of `kept`."""
        kept = self.kept(tf.shape(inputs), site=site, dropout_seed=dropout_seed, training=training)
        return fused_ops.drop(inputs, *kept, keep_prob=self.keep_prob, training=training) if kept else inputs

    def kept(
        self, shape: tf.Tensor, *, site: int, dropout_seed: tf.Tensor | None, training: bool | None
    ) -> list[tf.Tensor]:
        """Returns the one mask, bool of `shape`, of the entries that are kept; an empty list where nothing is dropped.

        `dropout_seed` is int64 [3]: run seed, step, and global index of the first example. `site` numbers the calls of
        one forward pass, since a shared layer is called at every depth.
        """
        if not training or not self.rate:
            return []
        if dropout_seed is None:
            return [keras.random.uniform(shape, seed=self.seed_generator) < self.keep_prob]
        kept = _keep_mask(shape, keep_prob=self.keep_prob, site=site, dropout_seed=dropout_seed)
        return [tf.reshape(kept, shape)]

    @property
    def keep_prob(self) -> float:
        """Share of the entries that are kept."""
        return 1.0 - self.rate

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}


def _keep_mask(shape: tf.Tensor, *, keep_prob: float, site: int, dropout_seed: tf.Tensor) -> tf.Tensor:
    """Returns bool [batch, entries of an example]: a slice of the mask that the whole global batch would have."""
    seed, step, first_example = tf.unstack(tf.cast(dropout_seed, tf.uint64))
    entries = tf.reduce_prod(shape[1:])
    counters_per_example = (entries + 3) // 4
    low = first_example * tf.cast(counters_per_example, tf.uint64)
    high = step * tf.constant(2**16, tf.uint64) + tf.constant(site, tf.uint64)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([shape[0], 4 * counters_per_example]),
        key=seed[None],
        counter=tf.stack([low, high]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    threshold = np.uint32(min(round(keep_prob * 2**32), 2**32 - 1))
    return bits[:, :entries] < threshold


_serializable = keras.saving.register_keras_serializable(package="albert_tf")


def block_site(depth: int, place: int) -> int:
    """Numbers the dropout calls of a forward pass; 0 is the embeddings'."""
    return 1 + 3 * depth + place


def site_after(depth: int) -> int:
    """Returns the first number for dropout calls that follow those of `depth` blocks."""
    return block_site(depth, 0)
