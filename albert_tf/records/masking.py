"""N-gram masking for masked language modelling, on arrays of many examples (paper section 4.1; TF1 section 1.5).

Two deliberate differences from the original: words and n-grams never cross [SEP], and a random replacement is never
a special piece. Each example's masks depend on its own key only.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.records.keyed_random import derive_keys, random_bits
from albert_tf.text.tokenizer_files import Tokenizer

MASK_SHARE, UNCHANGED_SHARE = 0.8, 0.1  # the rest is replaced by a random piece

_ORDER, _REPLACEMENT = 1, 2  # streams of random numbers
_CONTINUES, _STARTS, _PADS, _ENCLOSES = range(4)  # kinds of pieces: of a word, padding, [CLS] or [SEP]

# One random number for each word orders the visits (its highest bits) and draws the length of the n-gram.
_WORD_BITS, _DRAW_BITS = 17, 21
_WORD_SHIFT = np.uint64(_WORD_BITS)
_LOW_WORD_BITS, _LOW_DRAW_BITS = np.uint64(2**_WORD_BITS - 1), np.uint64(2**_DRAW_BITS - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings:
    """How many tokens are chosen, and in what spans. Lengths of n-grams are counted in words."""

    masked_lm_prob: float
    max_predictions_per_seq: int
    ngram: int
    favor_shorter_ngram: bool
    do_whole_word_mask: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "MaskingSettings":
        """Picks the settings from a mapping with more keys, such as a manifest's settings."""
        return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})


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
    starts: np.ndarray  # first token, counted through all examples
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
    kinds, word_start = _classify(input_ids, tokenizer)
    maskable = kinds <= _STARTS
    words = _find_words(word_start if settings.do_whole_word_mask else maskable, maskable)
    chosen = _choose_ngrams(words, targets_per_example(lengths, settings), keys=keys, settings=settings)
    return _replace_targets(
        input_ids,
        _tokens_of_words(words, chosen, input_ids.shape[1]),
        boundary=word_start | (kinds == _ENCLOSES),
        keys=keys,
        tokenizer=tokenizer,
        settings=settings,
    )


def token_boundaries(input_ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Returns uint8 [N, max_seq_length]: 1 where a word begins and at special pieces."""
    kinds, word_start = _classify(input_ids, tokenizer)
    return (word_start | (kinds == _ENCLOSES)).astype(np.uint8)


def _classify(input_ids: np.ndarray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the kind of each piece, uint8 [N, max_seq_length], and whether a word begins there."""
    kinds = _piece_kinds(tokenizer)[input_ids]
    word_start = kinds == _STARTS
    # What follows a special piece begins a word, so that no word crosses [SEP].
    word_start[:, 1:] |= (kinds[:, 1:] <= _STARTS) & (kinds[:, :-1] > _STARTS)
    return kinds, word_start


def _piece_kinds(tokenizer: Tokenizer) -> np.ndarray:
    """Returns uint8 [vocab_size]: what each piece is to the masker."""
    kinds = np.where(tokenizer.word_starts, _STARTS, _CONTINUES).astype(np.uint8)
    kinds[tokenizer.pad_id] = _PADS
    kinds[[tokenizer.cls_id, tokenizer.sep_id]] = _ENCLOSES
    return kinds


def _find_words(unit_start: np.ndarray, maskable: np.ndarray) -> _Words:
    """Lists the words: a word runs from its start to the next start or special piece, which every row ends with."""
    rows, row_length = unit_start.shape
    boundaries = np.flatnonzero(unit_start | ~maskable)
    is_start = unit_start.reshape(-1)[boundaries]
    index = np.flatnonzero(is_start)
    starts, ends = boundaries[index], boundaries[np.minimum(index + 1, len(boundaries) - 1)]
    is_last = ~is_start[np.minimum(index + 1, len(boundaries) - 1)]  # of its segment
    last_of_segment = np.flatnonzero(is_last)[np.cumsum(is_last) - is_last]
    offsets = np.searchsorted(starts, np.arange(rows + 1) * row_length)
    return _Words(offsets, starts, ends, last_of_segment - np.arange(len(starts)) + 1)


def _tokens_of_words(words: _Words, chosen: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns row and column of each token of the chosen words, in order."""
    starts = words.starts[chosen]
    sizes = words.ends[chosen] - starts
    before = np.cumsum(sizes) - sizes
    return np.divmod(np.repeat(starts - before, sizes) + np.arange(sizes.sum()), row_length)


def _ngram_thresholds(settings: MaskingSettings) -> np.ndarray:
    """Returns where, in a draw of _DRAW_BITS, n-gram lengths 2, 3, ... begin: n is proportional to 1/n, or reversed."""
    weights = 1.0 / np.arange(1, settings.ngram + 1)
    if not settings.favor_shorter_ngram:
        weights = weights[::-1]
    return np.rint(np.cumsum(weights / weights.sum())[:-1] * 2**_DRAW_BITS).astype(np.uint64)


def _visiting_order(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns uint64 [len(keys), most words], sorted: random bits, a draw of _DRAW_BITS, and the word in _WORD_BITS."""
    most = int(counts.max(initial=0))
    word = np.arange(most, dtype=np.uint64)
    order = random_bits(derive_keys(keys, _ORDER), most) & ~_LOW_WORD_BITS | word
    order[word >= counts[:, None].astype(np.uint64)] = np.iinfo(np.uint64).max
    order.sort(axis=1)
    return order


def _choose_ngrams(words: _Words, budgets: np.ndarray, *, keys: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Returns bool [number of words]: whether a word is a target.

    Per example, words are visited in random order and each proposes an n-gram that begins there. It is shortened until
    it fits the budget, and taken if it fits and touches no word taken before. All examples take a visit at once.
    """
    chosen = np.zeros(len(words.starts) + settings.ngram, bool)  # the surplus lets an n-gram look past the end
    counts = np.diff(words.offsets)
    order = _visiting_order(keys, counts)
    thresholds = _ngram_thresholds(settings)
    budget = budgets.copy()
    rows = np.flatnonzero((budget > 0) & (counts > 0))
    visit = 0
    while len(rows):
        visited = order[rows, visit]
        left = budget[rows]
        word = words.offsets[rows] + (visited & _LOW_WORD_BITS).astype(np.int64)
        n = 1 + np.searchsorted(thresholds, visited >> _WORD_SHIFT & _LOW_DRAW_BITS, side="right")
        n = np.minimum(n, words.words_left[word])
        start = words.starts[word]
        size = words.ends[word + n - 1] - start
        while (too_long := (size > left) & (n > 1)).any():
            n -= too_long
            size = words.ends[word + n - 1] - start
        free = (size <= left) & ~chosen[word]
        for offset in range(1, settings.ngram):
            free &= ~chosen[word + offset] | (offset >= n)
        left = left - size * free
        word, n = word[free], n[free]
        chosen[word] = True
        for offset in range(1, settings.ngram):
            chosen[word[n > offset] + offset] = True
        budget[rows] = left
        visit += 1
        rows = rows[(left > 0) & (visit < counts[rows])]
    return chosen[: len(words.starts)]


def _replace_targets(
    input_ids: np.ndarray,
    targets: tuple[np.ndarray, np.ndarray],
    *,
    boundary: np.ndarray,
    keys: np.ndarray,
    tokenizer: Tokenizer,
    settings: MaskingSettings,
) -> MaskedExamples:
    """Replaces each target by [MASK] (80 %), itself (10 %) or a random ordinary piece (10 %), and lists them."""
    rows, columns = targets
    shape = (len(input_ids), settings.max_predictions_per_seq)
    of_row = np.bincount(rows, minlength=len(input_ids))
    slots = np.arange(len(rows)) - (np.cumsum(of_row) - of_row)[rows]
    positions, ids, weights = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    originals = input_ids[rows, columns]
    positions[rows, slots], ids[rows, slots], weights[rows, slots] = columns, originals, 1.0

    bits = random_bits(derive_keys(keys, _REPLACEMENT), shape[1])[rows, slots]
    kind = (bits >> np.uint64(40)) * 2.0**-24
    pick = (bits & np.uint64(2**40 - 1)) * 2.0**-40
    random_ids = tokenizer.ordinary_ids[(pick * len(tokenizer.ordinary_ids)).astype(np.int64)]
    masked = input_ids.copy()
    masked[rows, columns] = np.where(
        kind < MASK_SHARE,
        tokenizer.mask_id,
        np.where(kind < MASK_SHARE + UNCHANGED_SHARE, originals, random_ids),
    )
    return MaskedExamples(masked, boundary.astype(np.uint8), positions, ids, weights)
