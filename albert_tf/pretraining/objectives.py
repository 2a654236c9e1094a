"""The terms of pre-training: masked tokens and sentence order (TF1 run_pretraining.py:294-361)."""

from typing import Any

import tensorflow as tf

from albert_tf.architecture.weight_names import MASKED_LM, SENTENCE_ORDER
from albert_tf.model.dropout import Draw
from albert_tf.training.losses import Term, accuracy, cross_entropy


def pretraining_metric_names(heads: tuple[str, ...], *, unigram: bool = False) -> tuple[str, ...]:
    """Returns the keys of what `pretraining_loss` returns. The sum of those ending in `_loss` is minimised."""
    names = []
    if MASKED_LM in heads:
        names += ["masked_lm_loss", "masked_lm_accuracy"]
        names += ["masked_lm_unigram_cross_entropy"] if unigram else []
    if SENTENCE_ORDER in heads:
        names += ["sentence_order_loss", "sentence_order_accuracy", "swapped_share"]
    return (*names, "tokens_per_example")


def pretraining_loss(
    model: Any,
    batch: dict[str, tf.Tensor],
    *,
    draw: Draw | None,
    unigram_log_probs: tf.Tensor | None = None,
) -> dict[str, Term]:
    """Computes an `AlbertWithHeads`'s terms of pre-training on a batch of the record contract.

    As TF1 run_pretraining.py:294-361.

    `example_weights` float32 [batch] is 0 for rows that only fill up the last evaluation batch. Dropout is active where
    `draw` is given. With `unigram_log_probs` float32 [vocabulary] the cross-entropy of the same targets under
    token frequencies is returned too: what a model that ignores context reaches.
    """
    training = draw is not None
    outputs = model(batch, draw=draw, training=training)
    example_weights = batch["example_weights"]
    terms: dict[str, Term] = {}
    if model.masked_lm is not None:
        targets = (batch["masked_lm_ids"], batch["masked_lm_weights"] * example_weights[:, None])
        terms["masked_lm_loss"] = cross_entropy(outputs["masked_lm_logits"], *targets, training=training)
        terms["masked_lm_accuracy"] = accuracy(outputs["masked_lm_logits"], *targets)
        if unigram_log_probs is not None:
            losses = -tf.gather(unigram_log_probs, targets[0])
            terms["masked_lm_unigram_cross_entropy"] = (tf.reduce_sum(losses * targets[1]), tf.reduce_sum(targets[1]))
    if model.sentence_order is not None:
        labels = batch["next_sentence_labels"][:, 0]
        logits = outputs["sentence_order_logits"]
        terms["sentence_order_loss"] = cross_entropy(logits, labels, example_weights, training=training)
        terms["sentence_order_accuracy"] = accuracy(logits, labels, example_weights)
        swapped = tf.reduce_sum(tf.cast(labels, tf.float32) * example_weights)
        terms["swapped_share"] = (swapped, tf.reduce_sum(example_weights))
    tokens = tf.reduce_sum(tf.cast(tf.reduce_sum(batch["input_mask"], axis=1), tf.float32) * example_weights)
    terms["tokens_per_example"] = (tokens, tf.reduce_sum(example_weights))
    return terms
