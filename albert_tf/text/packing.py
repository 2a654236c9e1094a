"""Texts to the model's inputs: [CLS] a [SEP], or [CLS] a [SEP] b [SEP], cut and padded."""

from collections.abc import Sequence

import numpy as np

from albert_tf.text.tokenizer import Tokenizer


def join_ids(
    first: Sequence[int], second: Sequence[int] | None, *, cls_id: int, sep_id: int, max_seq_length: int
) -> tuple[list[int], int]:
    """Returns the ids of one text or two with their special ids, and how many of them belong to the first segment.

    Of a pair that is too long the longer text loses its last token, again and again (as TF1 classifier_utils.py).
    """
    if not second:
        kept = first[: max_seq_length - 2]
        return [cls_id, *kept, sep_id], len(kept) + 2
    room = max_seq_length - 3
    kept = first[: max(room - len(second), (room + 1) // 2)]
    return [cls_id, *kept, sep_id, *second[: room - len(kept)], sep_id], len(kept) + 2


def pack_texts(
    tokenizer: Tokenizer, texts: Sequence[str], *, text_pairs: Sequence[str] | None = None, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [texts, longest], of texts or of pairs of texts."""
    first = tokenizer.encode_batch(texts)
    second = [[] for _ in texts] if text_pairs is None else tokenizer.encode_batch(text_pairs)
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    rows = [
        join_ids(a, b, cls_id=cls_id, sep_id=sep_id, max_seq_length=max_seq_length)
        for a, b in zip(first, second, strict=True)
    ]
    input_ids, segment_ids, lengths = pad_rows(rows, pad_id=tokenizer.pad_id)
    input_mask = (np.arange(input_ids.shape[1]) < lengths[:, None]).astype(np.int32)
    return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}


def pad_rows(rows: Sequence[tuple[Sequence[int], int]], *, pad_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns `input_ids` and `segment_ids` [rows, longest] and `lengths` [rows], int32, of what `join_ids` gave."""
    lengths = np.array([len(ids) for ids, _ in rows], np.int32)
    input_ids = np.full((len(rows), lengths.max(initial=0)), pad_id, np.int32)
    segment_ids = np.zeros_like(input_ids)
    for row, (ids, first_length) in enumerate(rows):
        input_ids[row, : len(ids)] = ids
        segment_ids[row, first_length : len(ids)] = 1
    return input_ids, segment_ids, lengths
