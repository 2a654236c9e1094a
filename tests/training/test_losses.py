import numpy as np
import pytest
import tensorflow as tf

from albert_tf.training.losses import accuracy, cross_entropy


@pytest.mark.parametrize("training", [False, True])
def test_cross_entropy_is_a_weighted_sum(training):
    logits, labels = tf.constant([[[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]]), np.array([[2, 1]])
    weights = np.array([[1.0, 0.5]], np.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total, weight = cross_entropy(logits, tf.constant(labels), tf.constant(weights), training=training)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert abs(float(total) + np.log(probabilities[0, 0, 2]) + 0.5 * np.log(probabilities[0, 1, 1])) < 1e-6
    assert float(weight) == 1.5
    expected = (probabilities - np.eye(3)[labels]) * weights[..., None]
    assert np.abs(tape.gradient(total, logits) - expected).max() < 1e-6


def test_accuracy_ignores_weight_zero():
    logits = tf.constant([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    correct, weight = accuracy(logits, tf.constant([1, 0, 1]), tf.constant([1.0, 1.0, 0.0]))
    assert (float(correct), float(weight)) == (1.0, 2.0)
