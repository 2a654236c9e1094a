import tensorflow as tf

from albert_tf.model.precision import dtype_policy, resolve_precision


def test_precision_is_what_is_asked_for_or_what_the_hardware_has():
    strategy = tf.distribute.get_strategy()
    assert resolve_precision("float32", strategy) == "float32"
    assert resolve_precision("bfloat16", strategy) == "bfloat16"
    assert resolve_precision("auto", strategy) in ("float32", "bfloat16")
    assert dtype_policy("bfloat16").variable_dtype == "float32"
    assert dtype_policy("bfloat16").compute_dtype == "bfloat16"
