import numpy as np
import pytest
import tensorflow as tf

from albert_tf.inference.answer_spans import MAX_ANSWER_TOKENS, best_scored_span, best_span


def log_softmax(values):
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def brute_force(start, end, context):
    """Tries every span of one example; returns first token, last token and probability."""
    inside = np.flatnonzero(context)
    starts, ends = (dict(zip(inside, log_softmax(scores[inside]), strict=True)) for scores in (start, end))
    spans = [(i, j) for i in inside for j in inside if i <= j < i + MAX_ANSWER_TOKENS]
    best = max(spans, key=lambda span: starts[span[0]] + ends[span[1]])
    return (*best, np.exp(starts[best[0]] + ends[best[1]]))


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_all_spans_is_found(seed):
    rng = np.random.default_rng(seed)
    start, end = rng.normal(0, 2, (2, 3, 40)).astype(np.float32)
    context = np.zeros((3, 40), bool)
    context[:, 4:38] = rng.random((3, 34)) < 0.9
    found = best_span(tf.constant(start), tf.constant(end), tf.constant(context))
    for row in range(3):
        first, last, probability = brute_force(start[row], end[row], context[row])
        assert (found.start[row], found.end[row]) == (first, last)
        assert abs(float(found.score[row]) - probability) < 1e-6


def test_without_a_context_there_is_no_answer():
    zeros = tf.zeros([1, 6])
    span = best_span(zeros, zeros, tf.zeros([1, 6], tf.bool))
    assert [value.numpy().tolist() for value in span] == [[0], [0], [0.0]]
    assert best_span(zeros[:0], zeros[:0], tf.zeros([0, 6], tf.bool)).score.shape == (0,)


def test_candidates_that_end_before_they_begin_or_leave_the_context_are_passed_over():
    context = tf.constant([[False, True, True, True, True, False]])
    outputs = {
        "start_top_index": tf.constant([[3, 1]]),
        "start_top_log_probs": tf.constant([[-0.1, -2.0]]),
        "end_top_index": tf.constant([[2, 5, 2, 4]]),  # of start 3: before it, outside; of start 1: 2 and 4
        "end_top_log_probs": tf.constant([[-0.1, -0.2, -1.5, -1.0]]),
    }
    span = best_scored_span(outputs, context)
    assert (span.start.numpy().tolist(), span.end.numpy().tolist()) == ([1], [4])
    assert abs(float(span.score[0]) - np.exp(-3.0)) < 1e-6
