import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf_data_prep.sentence_pairs import Unit, document_key, lay_out, make_pairs

documents_strategy = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=6)


def make_unit(documents, seed=1):
    """Returns a unit in which every token is a number of its own, so that its place can be told."""
    lengths = np.array([length for document in documents for length in document])
    tokens = np.arange(5, 5 + lengths.sum(), dtype=np.int32)
    keys = np.array([document_key(seed, 0, index) for index in range(len(documents))])
    return Unit(tokens, np.cumsum(lengths), np.cumsum([len(d) for d in documents]), keys)


def pairs_of(documents, *, task="sop", length=32, short=0.1, pass_index=0, seed=1):
    unit = make_unit(documents, seed)
    return unit, make_pairs(unit, pass_index=pass_index, max_seq_length=length, short_seq_prob=short, pair_task=task)


def token_documents(unit):
    starts = np.concatenate([[0], unit.sentence_ends])
    ends = starts[unit.document_ends]
    return np.searchsorted(ends, np.arange(len(unit.tokens)), side="right")


@settings(max_examples=200)
@given(documents_strategy, st.integers(8, 80), st.integers(0, 5), st.integers(0, 1000))
def test_sentence_order_pairs_are_consecutive_text_of_one_document(documents, length, pass_index, seed):
    unit, pairs = pairs_of(documents, length=length, pass_index=pass_index, seed=seed)
    of_document = token_documents(unit)
    ends = set(unit.sentence_ends.tolist()) | {0}
    for a, la, b, lb, label in zip(*pairs[:5], strict=True):
        assert la >= 1 and lb >= 1 and la + lb <= length - 3
        assert len(set(of_document[a : a + la]) | set(of_document[b : b + lb])) == 1
        first_end, second_start = (b + lb, a) if label else (a + la, b)
        assert first_end <= second_start, "the segments overlap, or the label is wrong"
        # Only truncation may part them, and the place where they meet is a sentence end.
        assert any(end in ends for end in range(first_end, second_start + 1))


@settings(max_examples=100)
@given(documents_strategy)
def test_without_truncation_every_sentence_of_longer_documents_is_used(documents):
    unit, pairs = pairs_of(documents, length=2000, short=0.0)
    used = np.zeros(len(unit.tokens), bool)
    for a, la, b, lb in zip(*pairs[:4], strict=True):
        assert not used[a : a + la].any() and not used[b : b + lb].any()
        used[a : a + la] = used[b : b + lb] = True
    longer = np.array([len(d) > 1 for d in documents])
    assert np.array_equal(used, longer[token_documents(unit)])
    assert not pairs.cut_tokens.any()


def test_documents_of_one_sentence_make_no_pair():
    assert len(pairs_of([[5], [30], [2]])[1].keys) == 0


def test_a_last_single_sentence_takes_its_neighbour_in():
    unit, pairs = pairs_of([[10, 10, 10]], length=23, short=0.0)
    spans = sorted((min(a, b), max(a + la, b + lb)) for a, la, b, lb in zip(*pairs[:4], strict=True))
    assert spans == [(0, 20), (10, 30)]


def test_half_are_swapped_and_split_points_are_equally_likely():
    unit, pairs = pairs_of([[1, 1, 1, 1, 1]] * 4000, length=64, short=0.0)
    assert abs(pairs.labels.mean() - 0.5) < 0.04
    first = np.where(pairs.labels == 1, pairs.b_length, pairs.a_length)
    shares = np.bincount(first, minlength=5)[1:5] / len(first)
    assert np.abs(shares - 0.25).max() < 0.04


def test_short_targets_are_drawn_per_document_and_pass():
    unit, pairs = pairs_of([[1] * 200] * 2000, length=103, short=0.1)
    lengths = pairs.a_length + pairs.b_length
    documents = token_documents(unit)[pairs.a_start]
    short = [lengths[documents == d].max() < 100 for d in range(2000)]
    assert abs(np.mean(short) - 0.1) < 0.03


@settings(max_examples=100)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(8, 60))
def test_truncation_takes_from_the_longer_segment_as_one_by_one_removal_would(la, lb, length):
    unit, pairs = pairs_of([[la, lb]], length=length, short=0.0)
    a, b = (lb, la) if pairs.labels[0] else (la, lb)
    while a + b > length - 3:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    assert (pairs.a_length[0], pairs.b_length[0]) == (a, b)
    assert pairs.cut_tokens[0] == la + lb - a - b


def test_truncation_is_from_both_ends_evenly():
    fronts = []
    for seed in range(300):
        unit, pairs = pairs_of([[100, 1]], length=54, short=0.0, seed=seed)
        fronts.append(min(pairs.a_start[0], pairs.b_start[0]))
    assert abs(np.mean(fronts) - 25.5) < 1.0  # 51 of the 101 tokens go, each from the front with probability 1/2
    assert abs(np.std(fronts) - np.sqrt(51) / 2) < 0.6


def test_nsp_takes_b_from_another_document_half_of_the_time():
    unit, pairs = pairs_of([[5] * 30] * 300, task="nsp", length=64)
    documents = token_documents(unit)
    same = documents[pairs.a_start] == documents[pairs.b_start]
    assert np.array_equal(same, pairs.labels == 0)
    assert abs(pairs.labels.mean() - 0.5) < 0.05


def test_no_pair_task_fills_one_segment():
    unit, pairs = pairs_of([[10] * 9], task="none", length=32, short=0.0)
    assert not pairs.b_length.any() and not pairs.labels.any()
    batch = lay_out(unit, pairs, max_seq_length=32, cls_id=2, sep_id=3, pad_id=0)
    assert not batch["segment_ids"].any()
    assert (batch["input_ids"][:, 0] == 2).all()
    assert (batch["lengths"] == 32).all()


def test_layout_is_cls_a_sep_b_sep_with_segments_and_padding():
    unit, pairs = pairs_of([[2, 3]], length=12, short=0.0)
    batch = lay_out(unit, pairs, max_seq_length=12, cls_id=2, sep_id=3, pad_id=0)
    a, b = ([5, 6], [7, 8, 9]) if pairs.labels[0] == 0 else ([7, 8, 9], [5, 6])
    assert batch["input_ids"][0].tolist() == [2, *a, 3, *b, 3, 0, 0, 0, 0]
    assert batch["segment_ids"][0].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * 4
    assert batch["input_mask"][0].tolist() == [1] * 8 + [0] * 4


def test_passes_differ_and_repeat():
    documents = [[7] * 50] * 20
    first, again, other = (pairs_of(documents, pass_index=i)[1] for i in (0, 0, 1))
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert not np.array_equal(first.keys, other.keys)
