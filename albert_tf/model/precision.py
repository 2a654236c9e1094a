"""The precision of the computation: what the hardware has, and the Keras policy of it."""

from pathlib import Path

import keras
import tensorflow as tf


def resolve_precision(precision: str, strategy: tf.distribute.Strategy) -> str:
    """Returns float32 or bfloat16; `auto` means bfloat16 on TPUs, on GPUs from compute capability 8.0, and on CPUs
    with bfloat16 instructions."""
    if precision != "auto":
        return precision
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return "bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability") or (0, 0)
        return "bfloat16" if capability >= (8, 0) else "float32"
    return "bfloat16" if _cpu_has_bfloat16() else "float32"


def _cpu_has_bfloat16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def dtype_policy(precision: str) -> keras.DTypePolicy:
    """Returns the Keras policy: float32 weights, and computation in `precision`."""
    return keras.DTypePolicy("mixed_bfloat16" if precision == "bfloat16" else "float32")
