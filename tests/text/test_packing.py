import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.text.packing import join_ids, pack_texts

CLS, SEP = 2, 3


def truncated_one_by_one(first, second, room):
    """The original's rule, token by token."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


@given(st.lists(st.integers(5, 9)), st.lists(st.integers(5, 9), min_size=1), st.integers(5, 30))
def test_the_longer_text_is_cut_as_in_the_original(first, second, length):
    ids, first_length = join_ids(first, second, cls_id=CLS, sep_id=SEP, max_seq_length=length)
    a, b = truncated_one_by_one(first, second, length - 3)
    assert (ids, first_length) == ([CLS, *a, SEP, *b, SEP], len(a) + 2)


def test_texts_are_packed_and_padded(english_tokenizer):
    packed = pack_texts(english_tokenizer, ["Call me Ishmael.", ""], max_seq_length=16)
    ids = english_tokenizer.encode("Call me Ishmael.")
    assert packed["input_ids"].tolist() == [[CLS, *ids, SEP], [CLS, SEP] + [0] * len(ids)]
    assert packed["input_mask"].sum(axis=1).tolist() == [len(ids) + 2, 2]
    assert not packed["segment_ids"].any()
    assert pack_texts(english_tokenizer, ["Call me Ishmael."], max_seq_length=4)["input_ids"].shape == (1, 4)
    pair = pack_texts(english_tokenizer, ["Call me"], text_pairs=["Ishmael."], max_seq_length=16)
    assert pair["segment_ids"][0].tolist() == [0] * 4 + [1] * (len(ids) - 2 + 1)
    assert all(value.dtype == np.int32 for value in pair.values())
    with pytest.raises(ValueError, match="shorter"):
        pack_texts(english_tokenizer, ["a", "b"], text_pairs=["c"], max_seq_length=16)


def test_one_string_is_not_taken_for_a_list_of_letters(english_tokenizer):
    with pytest.raises(TypeError, match="texts must be a list of strings; received one str"):
        pack_texts(english_tokenizer, "Call me.", max_seq_length=16)
    with pytest.raises(TypeError, match="received one str"):
        pack_texts(english_tokenizer, ["a"], text_pairs="b", max_seq_length=16)
