import numpy as np
import tensorflow as tf

from albert_tf.model.attention import SelfAttention


def make(**options):
    return SelfAttention(
        16, num_attention_heads=2, attention_dropout=0.0, hidden_dropout=0.0, initializer_range=0.5, **options
    )


def test_only_the_asked_positions_are_computed_and_they_are_the_same():
    attention = make()
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.constant([[1] * 6, [1] * 4 + [0] * 2])
    some = attention(x, mask, positions=tf.constant([[0, 3], [2, 0]])).numpy()
    every = attention(x, mask).numpy()
    assert np.abs(some - np.stack([every[0, [0, 3]], every[1, [2, 0]]])).max() < 1e-6


def test_attention_is_that_of_its_definition():
    attention = make()
    x = tf.random.stateless_normal([1, 5, 16], [3, 4]).numpy()
    query, key, value = (
        (x[0] @ part.kernel.numpy() + part.bias.numpy()).reshape(5, 2, 8)
        for part in (attention.query, attention.key, attention.value)
    )
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    context = np.einsum("hqk,khd->qhd", weights, value).reshape(5, 16)
    total = x[0] + context @ attention.output_dense.kernel.numpy() + attention.output_dense.bias.numpy()
    expected = (total - total.mean(-1, keepdims=True)) / total.std(-1, keepdims=True)
    assert np.abs(attention(x, np.ones([1, 5], np.int32)).numpy()[0] - expected).max() < 1e-5
