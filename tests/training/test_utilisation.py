import tensorflow as tf

from albert_tf.training.utilisation import measure_product_rate


def test_the_rate_of_products_is_measured():
    assert 1e8 < measure_product_rate(tf.distribute.get_strategy(), precision="float32") < 1e14
