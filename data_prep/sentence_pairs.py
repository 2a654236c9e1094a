"""Documents to segment pairs that fill max_seq_length (paper section 3.1; TF1 create_pretraining_data.py).

A segment is a slice of the work unit's flat token array, so that a pair is five integers and no token is copied until
the examples are laid out. Unlike the original, a chunk of one sentence takes its neighbour in, and a document of one
sentence makes no pair. So both segments of a sentence-order pair always are consecutive text of one document, and half
of the pairs of either task have label 1. Documents are cut from either end, so that lengths do not tell the order.
"""

from typing import NamedTuple

import numpy as np

from albert_tf.records.keyed_random import derive_key, derive_keys, random_bits, uniforms

_SHORT_TARGET, _CHUNKS, _SPLIT, _LABEL, _FRONT_A, _FRONT_B, _OTHER = range(1, 8)  # streams of random numbers


class Unit(NamedTuple):
    """The tokenised documents of one work unit."""

    tokens: np.ndarray  # all sentences, one after the other
    sentence_ends: np.ndarray  # end of each sentence in `tokens`
    document_ends: np.ndarray  # end of each document, counted in sentences
    document_keys: np.ndarray  # uint64: from (seed, file, document)


class Pairs(NamedTuple):
    """N pairs of slices [start, start + length) of a unit's tokens; a length of 0 means that there is no B."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    labels: np.ndarray  # 0: in order, 1: swapped (NSP: B comes from another document)
    keys: np.ndarray  # uint64: decides the example's masks
    cut_tokens: np.ndarray  # tokens of the chunk that truncation removed

    def part(self, begin: int, end: int) -> "Pairs":
        """Returns the pairs [begin, end)."""
        return Pairs(*(array[begin:end] for array in self))


class _Chunks(NamedTuple):
    """Runs of sentences [first, end), numbered within the unit."""

    first: np.ndarray
    end: np.ndarray
    target: np.ndarray
    document: np.ndarray
    keys: np.ndarray


def make_pairs(unit: Unit, *, pass_index: int, max_seq_length: int, short_seq_prob: float, pair_task: str) -> Pairs:
    """Returns the pairs of one pass over a unit's documents; `pass_index` counts duplicates from 0."""
    max_tokens = max_seq_length - (2 if pair_task == "none" else 3)
    min_sentences = 1 if pair_task == "none" else 2
    chunks = _make_chunks(
        unit, pass_index=pass_index, max_tokens=max_tokens, short_seq_prob=short_seq_prob, min_sentences=min_sentences
    )
    starts = np.concatenate([[0], unit.sentence_ends])
    begin, end = starts[chunks.first], starts[chunks.end]
    labels = np.zeros(len(begin), np.int64)
    if pair_task == "none":
        a_start, a_length, b_start, b_length = begin, end - begin, end, np.zeros_like(begin)
    else:
        count = chunks.end - chunks.first
        share = uniforms(derive_keys(chunks.keys, _SPLIT), 1)[:, 0]
        split = starts[chunks.first + 1 + (share * (count - 1)).astype(np.int64)]  # 1 to n-1 sentences go to A
        a_start, a_length, b_start, b_length = begin, split - begin, split, end - split
        labels = (uniforms(derive_keys(chunks.keys, _LABEL), 1)[:, 0] < 0.5).astype(np.int64)
    if pair_task == "sop":
        swapped = labels == 1
        a_start, b_start = np.where(swapped, b_start, a_start), np.where(swapped, a_start, b_start)
        a_length, b_length = np.where(swapped, b_length, a_length), np.where(swapped, a_length, b_length)
    if pair_task == "nsp":
        b_start, b_length = _random_segments(unit, chunks, labels, a_length, b_start, b_length)
    whole = a_length + b_length
    a_start, a_length, b_start, b_length = _truncate(a_start, a_length, b_start, b_length, max_tokens, chunks.keys)
    return Pairs(a_start, a_length, b_start, b_length, labels, chunks.keys, whole - a_length - b_length)


def lay_out(
    unit: Unit, pairs: Pairs, *, max_seq_length: int, cls_id: int, sep_id: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` and `segment_ids` [N, max_seq_length] and `lengths` [N], all integers.

    An example is [CLS] A [SEP] B [SEP], or [CLS] A [SEP] where there is no B.
    """
    position = np.arange(max_seq_length)
    a_end = 1 + pairs.a_length
    b_begin = a_end + 1
    lengths = np.where(pairs.b_length > 0, b_begin + pairs.b_length + 1, b_begin)
    in_a = position < b_begin[:, None]
    inside = position < lengths[:, None]
    source = np.where(in_a, (pairs.a_start - 1)[:, None], (pairs.b_start - b_begin)[:, None]) + position
    input_ids = np.where(inside, unit.tokens.take(source, mode="clip"), np.int32(pad_id))
    rows = np.arange(len(lengths))
    input_ids[:, 0] = cls_id
    input_ids[rows, a_end] = sep_id
    input_ids[rows, lengths - 1] = sep_id
    segment_ids = (inside & ~in_a).astype(np.uint8)
    return {"input_ids": input_ids, "input_mask": inside.astype(np.uint8), "segment_ids": segment_ids,
            "lengths": lengths}  # fmt: skip


def _make_chunks(unit: Unit, *, pass_index: int, max_tokens: int, short_seq_prob: float, min_sentences: int) -> _Chunks:
    """Cuts every document into runs of sentences that reach its target length, which is drawn once per pass.

    Half of the documents, anew in each pass, are cut from their end towards their beginning. The sentence that fills a
    chunk tends to be long, and the rest of a document short: always at the same side they would tell the order.
    """
    pass_keys = derive_keys(unit.document_keys, pass_index)
    draws = uniforms(derive_keys(pass_keys, _SHORT_TARGET), 3)
    backward = draws[:, 2] < 0.5
    short = draws[:, 0] < short_seq_prob
    targets = np.where(short, 2 + (draws[:, 1] * (max_tokens - 1)).astype(np.int64), max_tokens)
    firsts, ends, documents = [], [], []
    chunk_ends = _chunk_ends(unit, targets, min_sentences, backward).tolist()
    begin = 0
    for document, document_end in enumerate(unit.document_ends.tolist()):
        at = begin
        while document_end - begin >= min_sentences and at < document_end:
            last = chunk_ends[at]
            firsts.append(max(begin, min(at, last - min_sentences)))
            ends.append(last)
            documents.append(document)
            at = last
        begin = document_end
    document_of_chunk = np.array(documents, np.int64)
    chunk_keys = derive_keys(derive_keys(pass_keys[document_of_chunk], _CHUNKS), np.array(firsts, np.uint64) + 1)
    first, end = np.array(firsts, np.int64), np.array(ends, np.int64)
    mirror = (np.concatenate([[0], unit.document_ends[:-1]]) + unit.document_ends)[document_of_chunk]
    mirrored = backward[document_of_chunk]
    return _Chunks(
        np.where(mirrored, mirror - end, first),
        np.where(mirrored, mirror - first, end),
        targets[document_of_chunk],
        document_of_chunk,
        chunk_keys,
    )


def _chunk_ends(unit: Unit, targets: np.ndarray, min_sentences: int, backward: np.ndarray) -> np.ndarray:
    """Returns where a chunk that begins with each sentence ends: where it is long enough, or with the document.

    The sentences of documents that are cut `backward` are counted from their end.
    """
    sentences_of_document = np.diff(unit.document_ends, prepend=0)
    order = np.arange(len(unit.sentence_ends))
    mirror = 2 * unit.document_ends - sentences_of_document - 1
    order = np.where(
        np.repeat(backward, sentences_of_document), np.repeat(mirror, sentences_of_document) - order, order
    )
    starts = np.concatenate([[0], np.cumsum(np.diff(unit.sentence_ends, prepend=0)[order])])
    wanted = starts[:-1] + np.repeat(targets, sentences_of_document)
    ends = np.maximum(np.searchsorted(starts, wanted), np.arange(len(wanted)) + min_sentences)
    return np.minimum(ends, np.repeat(unit.document_ends, sentences_of_document))


def _random_segments(
    unit: Unit, chunks: _Chunks, labels: np.ndarray, a_length: np.ndarray, b_start: np.ndarray, b_length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Replaces B, where the label is 1, by sentences from a random place of another document of the unit."""
    b_start, b_length = b_start.copy(), b_length.copy()
    starts = np.concatenate([[0], unit.sentence_ends])
    first_sentences = np.concatenate([[0], unit.document_ends])
    draws = uniforms(derive_keys(chunks.keys, _OTHER), 2)
    for row in np.flatnonzero(labels):
        other = int(draws[row, 0] * (len(unit.document_ends) - 1))
        other += other >= chunks.document[row]
        low, high = first_sentences[other], first_sentences[other + 1]
        first = int(low + draws[row, 1] * (high - low))
        wanted = max(1, chunks.target[row] - a_length[row])
        last = min(int(np.searchsorted(starts[first + 1 : high + 1], starts[first] + wanted)) + first + 1, high)
        b_start[row], b_length[row] = starts[first], starts[last] - starts[first]
    return b_start, b_length


def _truncate(
    a_start: np.ndarray,
    a_length: np.ndarray,
    b_start: np.ndarray,
    b_length: np.ndarray,
    max_tokens: int,
    keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cuts pairs to `max_tokens` as if tokens left one at a time from the longer segment (B on a tie).

    Each leaves from the front or the back with equal chance, so the number taken from the front is binomial.
    """
    excess = np.maximum(0, a_length + b_length - max_tokens)
    a_kept = np.maximum(max_tokens - b_length, (max_tokens + 1) // 2)
    b_kept = np.maximum(max_tokens - a_length, max_tokens // 2)
    a_cut = np.where(excess > 0, np.maximum(0, a_length - a_kept), 0)
    b_cut = np.where(excess > 0, np.maximum(0, b_length - b_kept), 0)
    a_front = _fair_coins(derive_keys(keys, _FRONT_A), a_cut)
    b_front = _fair_coins(derive_keys(keys, _FRONT_B), b_cut)
    return a_start + a_front, a_length - a_cut, b_start + b_front, b_length - b_cut


def _fair_coins(keys: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Returns how many of `flips` [N] fair coins show heads."""
    heads = np.zeros_like(flips)
    rows = np.flatnonzero(flips)
    word = 0
    while len(rows):  # 64 coins at a time
        unused = np.maximum(0, 64 * (word + 1) - flips[rows]).astype(np.uint64)
        bits = random_bits(derive_keys(keys[rows], word), 1)[:, 0] >> unused
        heads[rows] += np.bitwise_count(bits)
        word += 1
        rows = rows[flips[rows] > 64 * word]
    return heads


def document_key(seed: int, file_index: int, index_in_file: int) -> np.uint64:
    """Returns the key that all of a document's random choices come from."""
    return derive_key(seed, file_index, index_in_file)
