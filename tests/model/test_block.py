import keras
import numpy as np
import tensorflow as tf

from albert_tf.model.attention import SelfAttention
from albert_tf.model.block import TransformerBlock
from albert_tf.model.dropout import Draw
from albert_tf.model.feed_forward import FeedForward

DRAW = Draw(11, 5, 0)


def make_block(**options):
    attention = SelfAttention(
        16, num_attention_heads=2, attention_dropout=0.1, hidden_dropout=0.1, initializer_range=0.02, **options
    )
    feed_forward = FeedForward(
        16, intermediate_size=24, hidden_act="gelu_tanh", hidden_dropout=0.1, initializer_range=0.02, **options
    )
    return TransformerBlock(attention, feed_forward, **options)


def test_every_dropout_site_acts_on_its_own():
    block = make_block()
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    plain = block(x, mask).numpy()
    for site in (block.attention.attention_dropout, block.attention.hidden_dropout, block.feed_forward.hidden_dropout):
        rates = {s: s.rate for s in (block.attention.attention_dropout, block.attention.hidden_dropout,
                                     block.feed_forward.hidden_dropout)}  # fmt: skip
        for other in rates:
            other.rate = 0.5 if other is site else 0.0
        assert np.abs(block(x, mask, draw=DRAW, training=True).numpy() - plain).max() > 1e-3
        for other, rate in rates.items():
            other.rate = rate


def test_depth_changes_the_masks_of_a_shared_block():
    block = make_block()
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    first = block(x, mask, depth=0, draw=DRAW, training=True).numpy()
    assert not np.allclose(first, block(x, mask, depth=1, draw=DRAW, training=True).numpy())


def test_padding_changes_nothing_for_the_tokens():
    block = make_block()
    x = tf.random.stateless_normal([1, 6, 16], [1, 2])
    short = block(x[:, :4], tf.ones([1, 4], tf.int32)).numpy()
    padded = block(x, tf.constant([[1, 1, 1, 1, 0, 0]])).numpy()
    assert np.abs(padded[:, :4] - short).max() < 1e-6


def test_a_block_rebuilds_from_its_config():
    block = make_block()
    config = block.get_config()
    TransformerBlock.from_config(config)
    again = TransformerBlock.from_config(config)  # which the first call left as it was
    assert [w.shape for w in again.weights] == [w.shape for w in block.weights]
    again.set_weights(block.get_weights())
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    assert np.array_equal(again(x, mask), block(x, mask))


def test_bfloat16_keeps_float32_weights_and_stays_close():
    block = make_block()
    low = make_block(dtype=keras.DTypePolicy("mixed_bfloat16"))
    low.set_weights(block.get_weights())
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    output = low(x, mask)
    assert output.dtype == tf.bfloat16
    assert {w.dtype for w in low.trainable_weights} == {"float32"}
    assert np.abs(tf.cast(output, tf.float32) - block(x, mask)).max() < 0.1
