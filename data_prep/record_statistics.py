"""What records are like: counts that add up over batches, the shares that follow, and warnings where they are odd."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np

SKIPPED = {
    "documents_of_one_sentence": "one sentence only",
    "documents_without_another": "no other document near",
    "documents_without_token": "no token",
}
LONGEST_RUN = 4  # runs of this many masked words and more are counted together


def count_examples(batch: Mapping[str, np.ndarray], *, mask_id: int) -> collections.Counter:
    """Returns counts of a batch's examples, given the arrays [N, ...] of the record contract."""
    lengths = batch["input_mask"].sum(axis=1)
    counts: collections.Counter = collections.Counter(
        examples=len(lengths),
        label_1=int(batch["next_sentence_labels"].sum()),
        example_tokens=int(lengths.sum()),
        example_slots=batch["input_mask"].size,
        examples_half_empty=int((2 * lengths < batch["input_mask"].shape[1]).sum()),
    )
    if "masked_lm_weights" not in batch:
        return counts
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    now = batch["input_ids"][rows, positions]
    masked = int((now == mask_id).sum())
    unchanged = int((now == batch["masked_lm_ids"][rows, slots]).sum())
    counts.update(masked_tokens=len(rows), masked_to_mask=masked, masked_unchanged=unchanged)
    if "token_boundary" not in batch:
        return counts
    words = np.cumsum(batch["token_boundary"], axis=1, dtype=np.int32)[rows, positions]
    for length, number in enumerate(_run_lengths(rows, words)):
        if length:
            counts[f"masked_runs_of_{length}"] = int(number)
    return counts


def _run_lengths(rows: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Returns how many maximal runs of neighbouring masked words have each length, up to LONGEST_RUN.

    `rows` and `words` are the example of each masked token and its word's number there.
    """
    if not len(rows):
        return np.zeros(LONGEST_RUN + 1, np.int64)
    number = rows * (2 * words.max() + 2) + words  # so that words of two examples are never neighbours
    number = number[np.flatnonzero(np.diff(number, prepend=-1))]  # one entry for each word
    begins = np.flatnonzero(np.diff(number, prepend=-2) != 1)
    return np.bincount(np.minimum(np.diff(begins, append=len(number)), LONGEST_RUN), minlength=LONGEST_RUN + 1)


def summarize(counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the counts of one split with the shares that tell whether the data are sane."""
    split: dict[str, Any] = dict(sorted(counts.items()))
    if split.get("tokens"):
        split["unknown_share"] = _share(split, "unknown_tokens", "tokens")
    if split.get("examples"):
        split["label_1_share"] = _share(split, "label_1", "examples")
        split["mean_example_tokens"] = round(split["example_tokens"] / split["examples"], 3)
        split["half_empty_share"] = _share(split, "examples_half_empty", "examples")
        split["cut_share"] = round(split.get("truncated_tokens", 0) / (
            split.get("truncated_tokens", 0) + split["example_tokens"]), 6)  # fmt: skip
        split["padding_share"] = round(1 - split["example_tokens"] / split["example_slots"], 6)
    if split.get("masked_tokens"):
        split["masked_share"] = _share(split, "masked_tokens", "example_tokens")
        mask, same = (_share(split, name, "masked_tokens") for name in ("masked_to_mask", "masked_unchanged"))
        split["replacement_shares"] = {"mask": mask, "unchanged": same, "random": round(1 - mask - same, 6)}
        runs = [split.pop(f"masked_runs_of_{length}", 0) for length in range(1, LONGEST_RUN + 1)]
        names = [*map(str, range(1, LONGEST_RUN)), f"{LONGEST_RUN} or more"]
        if any(runs):
            shares = {name: round(run / sum(runs), 6) for name, run in zip(names, runs, strict=True)}
            split["masked_run_shares"] = shares
    return split


def summarize_all(counts: Mapping[str, int], *, pair_task: str) -> dict[str, Any]:
    """Returns the statistics of counts that are named group/name, by group, and warnings where they are odd."""
    groups: dict[str, dict[str, int]] = {"input": {}, "train": {}, "eval": {}}
    for name, value in sorted(counts.items()):
        group, key = name.split("/")
        groups[group][key] = value
    statistics: dict[str, Any] = {name: summarize(group) for name, group in groups.items()}
    statistics["warnings"] = find_warnings(statistics["train"], pair_task=pair_task, input_counts=groups["input"])
    return statistics


def _share(split: Mapping[str, int], part: str, whole: str) -> float:
    return round(split.get(part, 0) / split[whole], 6)


def describe(split: Mapping[str, Any]) -> str:
    """Returns a split's statistics as a line for people."""
    parts = [f"{split['examples']:,} examples"]
    if "tokens" in split:
        parts[0] += f" from {split['documents']:,} documents of {split['tokens']:,} tokens"
        parts.append(f"{split['unknown_share']:.2%} unknown pieces")
    parts.append(f"{split['mean_example_tokens']:.1f} tokens an example")
    if "masked_share" in split:
        parts.append(f"{split['masked_share']:.1%} masked")
    parts.append(f"{split['label_1_share']:.1%} with label 1")
    for name, reason in SKIPPED.items():
        if split.get(name):
            parts.append(f"{split[name]:,} documents skipped because they have {reason}")
    return "; ".join(parts)


def find_warnings(split: Mapping[str, Any], *, pair_task: str, input_counts: Mapping[str, int]) -> list[str]:
    """Returns a sentence for everything about a split's statistics that a sane text and vocabulary do not show."""
    warnings = []
    unknown, labels = split.get("unknown_share", 0), split.get("label_1_share", 0)
    if unknown > 0.05:
        warnings.append(f"{unknown:.1%} of the pieces are unknown: the vocabulary does not fit the text")
    # Five standard errors keep small samples from crying wolf.
    if pair_task != "none" and abs(labels - 0.5) > max(0.05, 2.5 / max(1, split.get("examples", 0)) ** 0.5):
        warnings.append(f"{labels:.1%} of the pairs have label 1; half is right")
    documents = split.get("documents", 0)
    if documents and input_counts.get("documents", 0) <= input_counts.get("files", 0) and split["sentences"] > 1000:
        warnings.append("no document ends within a file: check --document_mode against the text")
    single = split.get("documents_of_one_sentence", 0)
    if documents > 10 and single > documents / 4:
        warnings.append(f"{single / documents:.0%} of the documents have one sentence, which makes no pair: check "
                        "--document_mode and --sentence_split against the text")  # fmt: skip
    padding = split.get("padding_share", 0)
    if padding > 0.2:
        warnings.append(f"{padding:.1%} of the positions are padding: documents are short for this "
                        "--max_seq_length; check --document_mode against the text")  # fmt: skip
    if split.get("cut_share", 0) > 0.5:
        warnings.append(f"{split['cut_share']:.1%} of the text is cut off: sentences are long for this "
                        "--max_seq_length; check --sentence_split")  # fmt: skip
    return warnings
