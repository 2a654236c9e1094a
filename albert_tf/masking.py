"""N-gram masking for masked language modelling, on arrays of many examples (paper section 4.1; TF1 section 1.5).

Two deliberate differences from the original: words and n-grams never cross [SEP], and a random replacement is never
a special piece. Each example's masks depend on its own key only.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from albert_tf.keyed_random import derive_keys, random_bits, uniforms
from albert_tf.tokenizer import Tokenizer

MASK_SHARE, UNCHANGED_SHARE = 0.8, 0.1  # the rest is replaced by a random piece


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings:
    """How many tokens are chosen, and in what spans. Lengths of n-grams are counted in words."""

    masked_lm_prob: float
    max_predictions_per_seq: int
    ngram: int
    favor_shorter_ngram: bool
    do_whole_word_mask: bool


class MaskedExamples(NamedTuple):
    """Arrays of N examples, padded with 0; positions are sorted within each example."""

    input_ids: np.ndarray  # [N, max_seq_length]
    token_boundary: np.ndarray  # [N, max_seq_length]: 1 where a word begins and at special pieces
    masked_lm_positions: np.ndarray  # [N, max_predictions_per_seq]
    masked_lm_ids: np.ndarray  # [N, max_predictions_per_seq]: the original ids
    masked_lm_weights: np.ndarray  # float32 [N, max_predictions_per_seq]: 1 for a target, 0 for padding


class _Words(NamedTuple):
    """The words of all examples, flat; those of example i are rows [offsets[i], offsets[i + 1])."""

    offsets: np.ndarray
    starts: np.ndarray  # first token
    ends: np.ndarray  # one past the last token
    words_left: np.ndarray  # words from this one to the end of its segment


def targets_per_example(lengths: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Returns how many tokens of each example are to be predicted; `lengths` count [CLS] and [SEP] too."""
    if settings.masked_lm_prob == 0:
        return np.zeros(len(lengths), np.int64)
    wanted = np.maximum(1, np.rint(lengths * settings.masked_lm_prob)).astype(np.int64)
    return np.minimum(settings.max_predictions_per_seq, wanted)


def mask_examples(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    *,
    keys: np.ndarray,
    tokenizer: Tokenizer,
    settings: MaskingSettings,
) -> MaskedExamples:
    """Chooses and replaces targets in `input_ids` [N, max_seq_length], of which `lengths` [N] are tokens.

    `keys` uint64 [N] decide every random choice. The text must be enclosed by [CLS] and [SEP] as in pre-training.
    """
    inside = np.arange(input_ids.shape[1])[None, :] < lengths[:, None]
    maskable = inside & (input_ids != tokenizer.cls_id) & (input_ids != tokenizer.sep_id)
    after_special = np.zeros_like(maskable)
    after_special[:, 1:] = ~maskable[:, :-1]
    word_start = maskable & (tokenizer.word_starts[input_ids] | after_special)
    unit_start = word_start if settings.do_whole_word_mask else maskable
    words = _find_words(unit_start, maskable)
    chosen = _choose_ngrams(words, targets_per_example(lengths, settings), keys=keys, settings=settings)
    word_of_token = np.cumsum(unit_start).reshape(unit_start.shape) - 1
    targets = maskable & chosen[word_of_token] if len(chosen) else np.zeros_like(maskable)
    return _replace_targets(
        input_ids,
        targets,
        boundary=word_start | (inside & ~maskable),
        keys=keys,
        tokenizer=tokenizer,
        settings=settings,
    )


def _find_words(unit_start: np.ndarray, maskable: np.ndarray) -> _Words:
    """Lists the words: a word runs from its start to the next start or special piece, which every row ends with."""
    row_length = unit_start.shape[1]
    starts = np.flatnonzero(unit_start)
    boundaries = np.flatnonzero(unit_start | ~maskable)
    ends = boundaries[np.minimum(np.searchsorted(boundaries, starts, side="right"), len(boundaries) - 1)]
    last_in_segment = np.flatnonzero(~unit_start.reshape(-1)[ends])
    index = np.arange(len(starts))
    segment_last = last_in_segment[np.searchsorted(last_in_segment, index)] if len(starts) else index
    offsets = np.concatenate([[0], np.cumsum(unit_start.sum(axis=1))])
    row_begin = starts - starts % row_length
    return _Words(offsets, starts - row_begin, ends - row_begin, segment_last - index + 1)


def _ngram_lengths(keys: np.ndarray, count: int, settings: MaskingSettings) -> np.ndarray:
    """Draws n-gram lengths [len(keys), count] with probability proportional to 1/n (or to that order reversed)."""
    weights = 1.0 / np.arange(1, settings.ngram + 1)
    if not settings.favor_shorter_ngram:
        weights = weights[::-1]
    thresholds = np.cumsum(weights / weights.sum())[:-1]
    return 1 + np.searchsorted(thresholds, uniforms(keys, count), side="right")


def _choose_ngrams(words: _Words, budgets: np.ndarray, *, keys: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Returns bool [number of words]: whether a word is a target.

    Per example, words are visited in random order and each proposes an n-gram that begins there. It is shortened until
    it fits the budget, and taken if it fits and touches no word taken before. All examples take a visit at once.
    """
    chosen = np.zeros(len(words.starts), bool)
    counts = np.diff(words.offsets)
    most = int(counts.max(initial=0))
    order_bits = random_bits(derive_keys(keys, 1), most) >> np.uint64(1)
    order_bits[np.arange(most)[None, :] >= counts[:, None]] = np.iinfo(np.uint64).max
    order = np.argsort(order_bits, axis=1)
    lengths = _ngram_lengths(derive_keys(keys, 2), most, settings)
    budget = budgets.copy()
    rows = np.flatnonzero((budget > 0) & (counts > 0))
    visit = 0
    while len(rows):
        word = words.offsets[rows] + order[rows, visit]
        n = np.minimum(lengths[rows, visit], words.words_left[word])
        size = words.ends[word + n - 1] - words.starts[word]
        for _ in range(settings.ngram - 1):
            n = n - ((size > budget[rows]) & (n > 1))
            size = words.ends[word + n - 1] - words.starts[word]
        free = size <= budget[rows]
        for offset in range(settings.ngram):
            free &= (offset >= n) | ~chosen[np.minimum(word + offset, len(chosen) - 1)]
        for offset in range(settings.ngram):
            chosen[word[free & (offset < n)] + offset] = True
        budget[rows] -= np.where(free, size, 0)
        visit += 1
        rows = rows[(budget[rows] > 0) & (visit < counts[rows])]
    return chosen


def _replace_targets(
    input_ids: np.ndarray,
    targets: np.ndarray,
    *,
    boundary: np.ndarray,
    keys: np.ndarray,
    tokenizer: Tokenizer,
    settings: MaskingSettings,
) -> MaskedExamples:
    """Replaces each target by [MASK] (80 %), itself (10 %) or a random ordinary piece (10 %), and lists them."""
    shape = (len(input_ids), settings.max_predictions_per_seq)
    rows, columns = np.nonzero(targets)
    first_of_row = np.concatenate([[0], np.cumsum(targets.sum(axis=1))])[:-1]
    slots = np.arange(len(rows)) - first_of_row[rows]
    positions, ids, weights = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    originals = input_ids[rows, columns]
    positions[rows, slots], ids[rows, slots], weights[rows, slots] = columns, originals, 1.0

    kind = uniforms(derive_keys(keys, 3), shape[1])[rows, slots]
    pick = uniforms(derive_keys(keys, 4), shape[1])[rows, slots]
    random_ids = tokenizer.ordinary_ids[(pick * len(tokenizer.ordinary_ids)).astype(np.int64)]
    masked = input_ids.copy()
    masked[rows, columns] = np.where(
        kind < MASK_SHARE,
        tokenizer.mask_id,
        np.where(kind < MASK_SHARE + UNCHANGED_SHARE, originals, random_ids),
    )
    return MaskedExamples(masked, boundary.astype(np.int64), positions, ids, weights)
