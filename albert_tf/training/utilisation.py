"""The rate that products of matrices reach on this hardware, against which a training step is measured."""

import time

import tensorflow as tf

_SIZES = {"CPU": 1024, "GPU": 8192, "TPU": 8192}  # of square matrices, large enough for the full rate
_PRODUCTS, _TRIES = 8, 3


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
