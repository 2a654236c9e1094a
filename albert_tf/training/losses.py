"""Losses and accuracies. Each is a (sum, weight) pair, never a mean: the loop divides by the global batch's weight."""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.model import fused_ops

Term = tuple[tf.Tensor, tf.Tensor]
LossFunction = Callable[..., dict[str, Term]]


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, *, training: bool) -> Term:
    """Returns the weighted sum of -log softmax(logits)[labels], and the sum of the weights.

    `logits` float32 [..., classes]; `labels` int and `weights` float32 have its leading shape.
    """
    rows = tf.reshape(logits, [-1, logits.shape[-1]])
    losses = fused_ops.token_losses(rows, tf.reshape(labels, [-1]), training=training)
    return tf.reduce_sum(losses * tf.reshape(weights, [-1])), tf.reduce_sum(weights)


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Term:
    """Returns the weighted number of examples whose largest logit is the label's, and the sum of the weights."""
    correct = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
    return tf.reduce_sum(correct * weights), tf.reduce_sum(weights)
