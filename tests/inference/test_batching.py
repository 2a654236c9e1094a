import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.inference import batching
from albert_tf.inference.batching import plan_batches, read_ahead


@settings(max_examples=60)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=30), st.integers(20, 200))
def test_batches_hold_all_texts_within_the_budget_and_cost_no_more_than_a_greedy_plan(lengths, max_tokens):
    lengths = np.sort(lengths)[::-1]
    batches = plan_batches(lengths, max_tokens=max_tokens)
    assert [i for batch in batches for i in range(batch.start, batch.stop)] == list(range(len(lengths)))
    sizes = batching._BATCH_SIZES
    for batch in batches:
        assert len(lengths[batch]) in sizes
        assert len(lengths[batch]) == 1 or lengths[batch].max() * len(lengths[batch]) <= max_tokens
    greedy, start = [], 0
    while start < len(lengths):
        most = min(max(1, max_tokens // lengths[start]), len(lengths) - start)
        greedy.append(slice(start, start + sizes[sizes <= most].max()))
        start = greedy[-1].stop
    assert cost(lengths, batches) <= cost(lengths, greedy)


def cost(lengths, batches):
    return sum(lengths[batch].max() * len(lengths[batch]) + batching._BATCH_OVERHEAD for batch in batches)


def test_the_next_item_is_made_while_one_is_used():
    made = []

    def items():
        for item in range(3):
            made.append(item)
            yield item

    reader = read_ahead(items())
    assert next(reader) == 0
    deadline = time.monotonic() + 10
    while made != [0, 1] and time.monotonic() < deadline:
        time.sleep(0.001)
    assert made == [0, 1]
    assert list(reader) == [1, 2]


def test_an_error_in_reading_ahead_reaches_the_reader():
    def items():
        yield 1
        raise UserError("bad line")

    reader = read_ahead(items())
    assert next(reader) == 1
    with pytest.raises(UserError, match="bad line"):
        next(reader)
