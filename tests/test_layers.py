import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import layers

SEED = tf.constant([11, 5, 0], tf.int64)


def seed(step=5, first=0, run=11):
    return tf.constant([run, step, first], tf.int64)


def drop(shape, *, rate=0.25, site=3, dropout_seed=SEED):
    return layers.SeededDropout(rate)(tf.ones(shape), site=site, dropout_seed=dropout_seed, training=True).numpy()


@pytest.mark.parametrize("shape", [(8, 5, 7), (8, 3), (8, 2, 4, 4)])
def test_a_replica_draws_its_slice_of_the_global_mask(shape):
    whole = drop(shape)
    for first in (0, 2, 6):
        part = drop((2, *shape[1:]), dropout_seed=seed(first=first))
        assert np.array_equal(part, whole[first : first + 2])


def test_masks_differ_by_run_step_site_and_example():
    masks = [
        drop((1, 400)),
        drop((1, 400), dropout_seed=seed(step=6)),
        drop((1, 400), dropout_seed=seed(run=12)),
        drop((1, 400), dropout_seed=seed(first=1)),
        drop((1, 400), site=4),
    ]
    for i, a in enumerate(masks):
        for b in masks[i + 1 :]:
            # Independent masks agree where both keep or both drop.
            assert abs((a == b).mean() - (0.75**2 + 0.25**2)) < 0.12


def test_dropout_keeps_the_mean_and_the_rate():
    dropped = drop((50, 1000), rate=0.1)
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.9)}
    assert abs((dropped == 0).mean() - 0.1) < 0.005
    assert abs(dropped.mean() - 1) < 0.005


def test_dropout_does_nothing_outside_training_and_falls_back_to_keras():
    layer = layers.SeededDropout(0.5)
    x = tf.ones([4, 100])
    assert layer(x) is not None and np.array_equal(layer(x, dropout_seed=SEED), x)
    fallback = layer(x, training=True).numpy()
    assert 0.3 < (fallback == 0).mean() < 0.7


def make_block(**options):
    attention = layers.SelfAttention(
        16, num_attention_heads=2, attention_dropout=0.1, hidden_dropout=0.1, initializer_range=0.02, **options
    )
    feed_forward = layers.FeedForward(
        16, intermediate_size=24, hidden_act="gelu_tanh", hidden_dropout=0.1, initializer_range=0.02, **options
    )
    return layers.TransformerBlock(attention, feed_forward, **options)


def test_every_dropout_site_acts_on_its_own():
    block = make_block()
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    plain = block(x, mask).numpy()
    for site in (block.attention.attention_dropout, block.attention.hidden_dropout, block.feed_forward.hidden_dropout):
        rates = {s: s.rate for s in (block.attention.attention_dropout, block.attention.hidden_dropout,
                                     block.feed_forward.hidden_dropout)}  # fmt: skip
        for other in rates:
            other.rate = 0.5 if other is site else 0.0
        assert np.abs(block(x, mask, dropout_seed=SEED, training=True).numpy() - plain).max() > 1e-3
        for other, rate in rates.items():
            other.rate = rate


def test_depth_changes_the_masks_of_a_shared_block():
    block = make_block()
    x, mask = tf.random.stateless_normal([2, 6, 16], [1, 2]), tf.ones([2, 6], tf.int32)
    first = block(x, mask, depth=0, dropout_seed=SEED, training=True).numpy()
    assert not np.allclose(first, block(x, mask, depth=1, dropout_seed=SEED, training=True).numpy())


def test_padding_changes_nothing_for_the_tokens():
    block = make_block()
    x = tf.random.stateless_normal([1, 6, 16], [1, 2])
    short = block(x[:, :4], tf.ones([1, 4], tf.int32)).numpy()
    padded = block(x, tf.constant([[1, 1, 1, 1, 0, 0]])).numpy()
    assert np.abs(padded[:, :4] - short).max() < 1e-6


def test_a_block_rebuilds_from_its_config():
    block = make_block()
    again = layers.TransformerBlock.from_config(block.get_config())
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


def test_more_tokens_than_positions_are_refused():
    embedding = layers.FactorizedEmbedding(
        10, embedding_size=4, hidden_size=8, max_position_embeddings=5, type_vocab_size=2, dropout=0.0,
        initializer_range=0.02,
    )  # fmt: skip
    with pytest.raises(ValueError, match="received 6 and 5"):
        embedding(tf.zeros([1, 6], tf.int32), tf.zeros([1, 6], tf.int32))


def test_initial_values_are_a_normal_cut_at_two_deviations():
    values = layers.truncated_normal(0.02)((400, 400)).numpy()
    assert abs(values).max() <= 0.04
    assert abs(values.std() - 0.0176) < 0.0003
