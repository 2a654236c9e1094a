"""The best answer span of a context, from the scores of SQuAD's heads, as TensorFlow operations."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

MAX_ANSWER_TOKENS = 30  # TF1 run_squad_v1.py, max_answer_length

_IMPOSSIBLE = -1e30


class Span(NamedTuple):
    """First and last token of an answer, int32 [batch], and its probability, float32 [batch]; 0 where there is none."""

    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


def best_span(start_logits: tf.Tensor, end_logits: tf.Tensor, is_context: tf.Tensor) -> Span:
    """Chooses from logits [batch, seq]; probabilities are over the tokens of the context, bool [batch, seq]."""
    start = tf.nn.log_softmax(tf.where(is_context, start_logits, _IMPOSSIBLE))
    end = tf.nn.log_softmax(tf.where(is_context, end_logits, _IMPOSSIBLE))
    positions = tf.tile(tf.range(tf.shape(is_context)[1])[None], [tf.shape(is_context)[0], 1])
    ends = tf.tile(positions[:, None], [1, tf.shape(is_context)[1], 1])
    return _best(positions, start, ends, tf.tile(end[:, None], [1, tf.shape(is_context)[1], 1]), is_context)


def best_scored_span(outputs: Mapping[str, tf.Tensor], is_context: tf.Tensor) -> Span:
    """Chooses from the candidates of `heads.QuestionAnsweringV2Head`."""
    num_starts = outputs["start_top_index"].shape[1]
    starts = outputs["start_top_index"]
    ends, end_scores = (
        tf.reshape(outputs[name], [tf.shape(starts)[0], num_starts, outputs[name].shape[1] // num_starts])
        for name in ("end_top_index", "end_top_log_probs")
    )
    return _best(starts, outputs["start_top_log_probs"], ends, end_scores, is_context)


def _best(
    starts: tf.Tensor, start_scores: tf.Tensor, ends: tf.Tensor, end_scores: tf.Tensor, is_context: tf.Tensor
) -> Span:
    """Chooses from starts [batch, n] and, for each, ends [batch, n, m], given log probabilities of the same shapes."""
    begins = starts[:, :, None]
    allowed = (ends >= begins) & (ends < begins + MAX_ANSWER_TOKENS)
    allowed &= tf.gather(is_context, starts, batch_dims=1)[:, :, None]
    allowed &= tf.gather(is_context, ends, batch_dims=1)
    scores = tf.where(allowed, start_scores[:, :, None] + end_scores, _IMPOSSIBLE)
    shape = tf.shape(scores)
    flat = tf.reshape(scores, [shape[0], shape[1] * shape[2]])
    best = tf.argmax(flat, axis=1, output_type=tf.int32)
    score = tf.gather(flat, best, batch_dims=1)
    exists = score > _IMPOSSIBLE / 2
    start = tf.gather(starts, best // shape[2], batch_dims=1)
    end = tf.gather(tf.reshape(ends, [shape[0], shape[1] * shape[2]]), best, batch_dims=1)
    return Span(*(tf.where(exists, value, tf.zeros_like(value)) for value in (start, end, tf.exp(score))))
