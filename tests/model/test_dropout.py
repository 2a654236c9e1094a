import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.dropout import Draw, SeededDropout

DRAW = Draw(11, 5, 0)


def drop(shape, *, rate=0.25, site=3, draw=DRAW):
    return SeededDropout(rate)(tf.ones(shape), site=site, draw=draw, training=True).numpy()


@pytest.mark.parametrize("shape", [(8, 5, 7), (8, 3), (8, 2, 4, 4)])
def test_a_replica_draws_its_slice_of_the_global_mask(shape):
    whole = drop(shape)
    for first in (0, 2, 6):
        part = drop((2, *shape[1:]), draw=Draw(11, 5, first))
        assert np.array_equal(part, whole[first : first + 2])


def test_rows_of_one_example_have_places_of_their_own_in_the_global_batch():
    whole = drop((12, 5), draw=Draw(11, 5, 0, rows_per_example=3))
    part = drop((6, 5), draw=Draw(11, 5, 0, rows_per_example=3).after(tf.constant(2)))
    assert np.array_equal(part, whole[6:])


def test_masks_differ_by_run_step_site_and_example():
    masks = [
        drop((1, 400)),
        drop((1, 400), draw=Draw(11, 6, 0)),
        drop((1, 400), draw=Draw(12, 5, 0)),
        drop((1, 400), draw=Draw(11, 5, 1)),
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
    layer = SeededDropout(0.5)
    x = tf.ones([4, 100])
    assert layer(x) is not None and np.array_equal(layer(x, draw=DRAW), x)
    fallback = layer(x, training=True).numpy()
    assert 0.3 < (fallback == 0).mean() < 0.7
