import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.export.graph_packing import LENGTH_BUCKETS, bucket_length, plan_packing

CLS, SEP, PAD = 2, 3, 0
ids = st.lists(st.integers(5, 99), max_size=24)


def truncated(first, second, room):
    """Takes tokens away one by one, as the original's _truncate_seq_pair."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


def expected_row(first, second, *, max_seq_length):
    first, second = truncated(first, second, max_seq_length - (3 if second else 2))
    tail = [*second, SEP] if second else []
    return [CLS, *first, SEP, *tail], [0] * (len(first) + 2) + [1] * len(tail)


@settings(max_examples=150)
@given(st.lists(st.tuples(ids, ids), max_size=4), st.integers(8, 40))
def test_rows_are_those_of_the_original(pairs, max_seq_length):
    first, second = (
        tf.RaggedTensor.from_row_lengths(
            tf.constant(np.concatenate([[], *rows]), tf.int32), tf.constant([len(row) for row in rows], tf.int64)
        )
        for rows in ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    )
    packing = plan_packing(first, second, max_seq_length=max_seq_length)
    input_ids = packing.place(first.flat_values, second.flat_values, cls=CLS, sep=SEP, pad=PAD).numpy()
    rows = [expected_row(*pair, max_seq_length=max_seq_length) for pair in pairs]
    longest = max((len(row) for row, _ in rows), default=0)
    length = min([b for b in LENGTH_BUCKETS if longest <= b < max_seq_length], default=max_seq_length)
    assert input_ids.shape == (len(pairs), length)
    for row, (expected, segments) in enumerate(rows):
        padding = [0] * (length - len(expected))
        assert input_ids[row].tolist() == expected + padding
        assert packing.segment_ids[row].numpy().tolist() == segments + padding
        assert packing.input_mask[row].numpy().tolist() == [1] * len(expected) + padding
    assert packing.lengths.numpy().tolist() == [len(expected) for expected, _ in rows]


@pytest.mark.parametrize(
    ("lengths", "max_seq_length", "expected"),
    [([], 512, 16), ([2], 512, 16), ([16, 3], 512, 16), ([17], 512, 32), ([400], 512, 512), ([30], 31, 31),
     ([600], 1000, 1000)],
)  # fmt: skip
def test_a_batch_is_padded_to_its_own_length_rounded_up(lengths, max_seq_length, expected):
    assert bucket_length(tf.constant(lengths, tf.int32), max_seq_length=max_seq_length).numpy() == expected
