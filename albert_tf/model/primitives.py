"""What the layers are made of: initialiser, kernels with biases, dense layers and LayerNorms whose weights exist."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

LAYER_NORM_EPSILON = 1e-12

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns ALBERT's initialiser: a normal distribution cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


class PartWeights(NamedTuple):
    """What one call of an attention or a feed-forward layer reads, cast once: the kernels in the computation's type."""

    in_kernel: tf.Tensor  # [H, 3 H] of query, key and value side by side, or [H, intermediate]
    in_bias: tf.Tensor
    out_kernel: tf.Tensor  # [H, H] or [intermediate, H]
    out_bias: tf.Tensor
    gamma: tf.Tensor  # of the LayerNorm behind it
    beta: tf.Tensor


@_serializable
class Affine(keras.layers.Layer):
    """A kernel [inputs, units] and a bias [units], float32 under any policy; the layers above do the arithmetic."""

    def __init__(self, inputs: int, units: int, initializer_range: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        options = {"dtype": "float32", "autocast": False}
        self.kernel = self.add_weight(
            shape=(inputs, units), initializer=truncated_normal(initializer_range), name="kernel", **options
        )
        self.bias = self.add_weight(shape=(units,), initializer="zeros", name="bias", **options)
        self.built = True


def built_dense(inputs: int, units: int, *, initializer_range: float, dtype: Any, **kwargs: Any) -> keras.layers.Dense:
    """Returns a dense layer on [..., inputs] whose weights exist; `kwargs` are the layer's."""
    dense = keras.layers.Dense(units, kernel_initializer=truncated_normal(initializer_range), dtype=dtype, **kwargs)
    dense.build((None, None, inputs))
    return dense


def built_layer_norm(size: int, dtype: Any) -> keras.layers.LayerNormalization:
    """Returns a LayerNorm on [..., size] whose weights exist."""
    layer_norm = keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype)
    layer_norm.build((None, None, size))
    return layer_norm
