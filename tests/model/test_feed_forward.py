import numpy as np
import tensorflow as tf

from albert_tf.model.feed_forward import FeedForward


def test_it_is_that_of_its_definition():
    layer = FeedForward(16, intermediate_size=24, hidden_act="relu", hidden_dropout=0.0, initializer_range=0.5)
    x = tf.random.stateless_normal([2, 3, 16], [3, 4]).numpy()
    inner = np.maximum(x @ layer.intermediate_dense.kernel.numpy() + layer.intermediate_dense.bias.numpy(), 0)
    total = x + inner @ layer.output_dense.kernel.numpy() + layer.output_dense.bias.numpy()
    expected = (total - total.mean(-1, keepdims=True)) / total.std(-1, keepdims=True)
    assert np.abs(layer(x).numpy() - expected).max() < 1e-5
