"""The activation functions of the feed-forward network, by the names of `architecture.config`."""

from collections.abc import Callable

import tensorflow as tf


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """The tanh approximation of GELU (Hendrycks and Gimpel, 2016), as TF1 modeling.gelu."""
    return tf.nn.gelu(x, approximate=True)


def gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """GELU by the error function."""
    return tf.nn.gelu(x, approximate=False)


ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}
