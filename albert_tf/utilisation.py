"""How much of the hardware a training step uses: its matrix products, against the rate that products alone reach."""

import time

import tensorflow as tf

from albert_tf.config import AlbertConfig

_SIZES = {"CPU": 1024, "GPU": 8192, "TPU": 8192}  # of square matrices, large enough for the full rate
_PRODUCTS, _TRIES = 8, 3


def step_flops(config: AlbertConfig, *, batch_size: int, max_seq_length: int, max_predictions_per_seq: int) -> float:
    """Returns the floating-point operations of a pre-training step's matrix products, forward and backward.

    Two for each multiplication and addition, and three times the forward pass; padding counts, elementwise work does
    not, nor what is computed again to save memory. Every position of the last block counts, as in the plain model,
    though training leaves out those that no head reads.
    """
    hidden, inner, narrow = config.hidden_size, config.intermediate_size, config.embedding_size
    blocks = config.num_hidden_layers * config.inner_group_num
    a_token = blocks * (4 * hidden * hidden + 2 * hidden * inner + 2 * max_seq_length * hidden)
    a_token += narrow * hidden if narrow != hidden else 0
    a_prediction = hidden * narrow + narrow * config.vocab_size
    an_example = max_seq_length * a_token + max_predictions_per_seq * a_prediction + hidden * hidden
    return 3 * 2.0 * batch_size * an_example


def measure_product_rate(strategy: tf.distribute.Strategy, *, precision: str) -> float:
    """Returns the floating-point operations a second that all replicas together reach in products of matrices."""
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    size = next(_SIZES[kind] for kind in ("TPU", "GPU", "CPU") if kind in kinds)
    dtype = tf.as_dtype(precision)
    matrix = tf.cast(tf.random.stateless_normal([size, size], seed=[1, 2]), dtype)

    def products(matrix: tf.Tensor) -> tf.Tensor:
        result = matrix
        for _ in range(_PRODUCTS):
            result = tf.matmul(result, matrix) * tf.constant(size**-0.5, dtype)  # keeps the values' size
        return tf.reduce_sum(tf.cast(result, tf.float32))

    @tf.function
    def run(matrix: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return strategy.experimental_local_results(strategy.run(products, args=(matrix,)))

    seconds = []
    for _ in range(_TRIES + 1):  # the first compiles
        began = time.perf_counter()
        for result in run(matrix):
            result.numpy()
        seconds.append(time.perf_counter() - began)
    return strategy.num_replicas_in_sync * _PRODUCTS * 2.0 * size**3 / min(seconds[1:])
