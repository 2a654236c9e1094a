"""Records as text for people, with the checks and statistics that any records of the contract allow."""

import collections
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import expand_globs
from albert_tf.records.contract import RECORD_FEATURES, UNMASKED_FEATURES, decode_example
from albert_tf.records.framing import read_records
from albert_tf.records.manifest import Manifest, RecordsDirectory
from albert_tf.settings.data_preparation import InspectConfig
from albert_tf.text.tokenizer_files import Tokenizer, load_tokenizer
from albert_tf_data_prep.record_statistics import count_examples, describe, find_warnings, summarize

_EXAMPLES_AT_ONCE = 512

# How a target is shown: with colours and without.
_STYLES = {
    "mask": ("\033[42;30m{text}\033[0m", "[{text}]"),
    "unchanged": ("\033[43;30m{text}\033[0m", "[{text}=]"),
    "random": ("\033[41;37m{text}\033[0m\033[31m>{now}\033[0m", "[{text}>{now}]"),
    "special": ("\033[36m{text}\033[0m", "{text}"),
}
_LEGEND = {"mask": "masked", "unchanged": "target left as it is", "random": "target replaced by another piece"}


def inspect_records(config: InspectConfig) -> int:
    """Prints examples and statistics; returns 1 where a record breaks the contract or the manifest, else 0."""
    files = expand_globs(config.input_file, flag="--input_file")
    directory = RecordsDirectory.of_files(files)
    tokenizer = _find_tokenizer(config, directory)
    color = config.color == "always" or (config.color == "auto" and sys.stdout.isatty())
    counts: collections.Counter = collections.Counter()
    problems: collections.Counter = collections.Counter()
    shown = read = 0
    for batch in _batches(files):
        read += len(batch["input_ids"])
        found = find_problems(batch, tokenizer)
        problems.update({what: int(rows.sum()) for what, rows in found.items()})
        sound = ~np.any(list(found.values()), axis=0)  # the others can neither be shown nor counted
        batch = {name: values[sound] for name, values in batch.items()}
        for row in range(min(config.num_examples - shown, int(sound.sum()))):
            shown += 1
            print("\n".join(show_example(batch, row, tokenizer=tokenizer, color=color, number=shown)) + "\n")
        counts.update(count_examples(batch, mask_id=tokenizer.mask_id))
    if not read:
        raise UserError(f"there is no record in {', '.join(map(str, files[:3]))}")
    if counts["examples"]:
        _print_statistics(counts, directory.manifest.pair_task if directory else "sop")
    broken = [f"{count:,} example(s) {what}" for what, count in problems.items() if count]
    if directory and not broken:
        broken = _disagreements(counts, files, directory.manifest)
    for line in broken:
        print(f"Problem: {line}")
    return int(bool(broken))


def _print_statistics(counts: Mapping[str, int], pair_task: str) -> None:
    summary = summarize(counts)
    print("Statistics: " + describe(summary))
    for name in ("replacement_shares", "masked_run_shares"):
        if name in summary:
            print(
                f"{name.replace('_', ' ')}: " + ", ".join(f"{key} {share:.1%}" for key, share in summary[name].items())
            )
    for warning in find_warnings(summary, pair_task=pair_task, input_counts={}):
        print(f"Warning: {warning}")


def _find_tokenizer(config: InspectConfig, directory: RecordsDirectory | None) -> Tokenizer:
    if config.tokenizer:
        tokenizer = load_tokenizer(config.tokenizer)
        if directory and tokenizer.fingerprint != directory.manifest.tokenizer_fingerprint:
            raise UserError(f"--tokenizer={config.tokenizer} is not the tokenizer of the records; drop the flag")
        return tokenizer
    if directory is None:
        raise UserError("no manifest stands beside the records, so --tokenizer must name their vocabulary")
    return directory.load_tokenizer()


def _batches(files: Sequence[Path]) -> Iterator[dict[str, np.ndarray]]:
    """Yields the examples of all files as arrays [N, length]; other records raise UserError."""
    for file in files:
        records = read_records(file)
        while examples := [decode_example(record) for record in itertools.islice(records, _EXAMPLES_AT_ONCE)]:
            masked = "masked_lm_ids" in examples[0]
            names = [feature.name for feature in (RECORD_FEATURES if masked else UNMASKED_FEATURES)]
            if "token_boundary" not in examples[0]:
                names.remove("token_boundary")
            try:
                batch = {name: np.stack([example[name] for example in examples]) for name in names}
                np.stack([batch[f.name] for f in RECORD_FEATURES if f.name in names and f.length == "max_seq_length"])
            except (KeyError, ValueError):
                raise UserError(f"{file} does not hold ALBERT pre-training records of one length: each needs "
                                f"{', '.join(names)}") from None  # fmt: skip
            yield batch


def find_problems(batch: Mapping[str, np.ndarray], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Returns which examples break each rule of the contract, bool [N]."""
    ids, mask = batch["input_ids"], batch["input_mask"]
    lengths = (mask != 0).sum(axis=1)
    ends = ids == tokenizer.sep_id
    rows = np.arange(len(ids))
    problems = {
        "with ids outside the vocabulary": ((ids < 0) | (ids >= tokenizer.vocab_size)).any(axis=1),
        "whose input_mask has a gap": (np.diff(mask, axis=1) > 0).any(axis=1),
        "that do not begin with [CLS]": ids[:, 0] != tokenizer.cls_id,
        "that do not end with [SEP]": ~ends[rows, lengths - 1],
        "with pieces in the padding": ((mask == 0) & (ids != tokenizer.pad_id)).any(axis=1),
        "with a label other than 0 and 1": ~np.isin(batch["next_sentence_labels"], (0, 1)).all(axis=1),
        "with a segment other than 0 and 1": ~np.isin(batch["segment_ids"], (0, 1)).all(axis=1),
        "with an input_mask other than 0 and 1": ~np.isin(mask, (0, 1)).all(axis=1),
    }
    if "masked_lm_weights" in batch:
        used = batch["masked_lm_weights"] != 0
        targets = batch["masked_lm_ids"]
        special = np.isin(targets, [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id])
        unknown = (targets < 0) | (targets >= tokenizer.vocab_size)
        outside = (batch["masked_lm_positions"] < 0) | (batch["masked_lm_positions"] >= lengths[:, None])
        ordered = np.diff(batch["masked_lm_positions"], axis=1) > 0
        problems |= {
            "with a target outside the vocabulary": (used & unknown).any(axis=1),
            "with a target outside the example": (used & outside).any(axis=1),
            "with a target that is [CLS], [SEP] or padding": (used & special).any(axis=1),
            "whose targets are not in order": (used[:, 1:] & ~ordered).any(axis=1),
            "with no target": ~used.any(axis=1),
        }
    return problems


def _disagreements(counts: Mapping[str, int], files: Sequence[Path], manifest: Manifest) -> list[str]:
    """Returns where what was counted is not what the manifest says; the counts need all files of a split."""
    names = {file.name for file in files}
    split = next((s for s in ("train", "eval") if names == {n for n in manifest.shards if n.startswith(s)}), None)
    expected = {"examples": sum(manifest.shards[name].examples for name in names)}
    if split:
        expected = {name: value for name, value in manifest.statistics[split].items() if name in counts}
    return [f"{name} is {counts[name]:,}, and the manifest says {value:,}" for name, value in expected.items()
            if counts[name] != value]  # fmt: skip


def show_example(
    batch: Mapping[str, np.ndarray], row: int, *, tokenizer: Tokenizer, color: bool, number: int
) -> list[str]:
    """Returns an example as lines: what it is, and each segment's text with its targets marked."""
    ids, length = batch["input_ids"][row], int(batch["input_mask"][row].sum())
    targets: dict[int, int] = {}
    if "masked_lm_weights" in batch:
        used = batch["masked_lm_weights"][row] > 0
        pairs = zip(batch["masked_lm_positions"][row][used], batch["masked_lm_ids"][row][used], strict=True)
        targets = {int(position): int(original) for position, original in pairs}
    texts = ["", ""]
    for position in range(length):
        now = int(ids[position])
        text = _spell(targets.get(position, now), tokenizer)
        kind = "special" if now in (tokenizer.cls_id, tokenizer.sep_id) else None
        if position in targets:
            kind = "mask" if now == tokenizer.mask_id else "unchanged" if now == targets[position] else "random"
        space, text = (" ", text[1:]) if text.startswith(" ") else ("", text)
        if kind:
            text = _STYLES[kind][0 if color else 1].format(text=text or " ", now=_spell(now, tokenizer).strip())
        texts[int(batch["segment_ids"][row][position])] += space + text
    label = int(batch["next_sentence_labels"][row][0])
    order = "in order" if label == 0 else "swapped, or not of one text"
    lines = [f"Example {number}: {length} of {len(ids)} tokens, {len(targets)} targets, label {label} ({order})"]
    lines += [f"  {name}: {text}" for name, text in zip("AB", texts, strict=True) if text]
    if number == 1 and targets:
        marks = {kind: _STYLES[kind][0 if color else 1].format(text="word", now="other") for kind in _LEGEND}
        lines.append("  (" + "; ".join(f"{mark} {_LEGEND[kind]}" for kind, mark in marks.items()) + ")")
    return lines


def _spell(piece_id: int, tokenizer: Tokenizer) -> str:
    """Returns a piece as it reads in text, with a space in front where a word begins."""
    piece = tokenizer.pieces([piece_id])[0]
    if tokenizer.kind == "sentencepiece":
        return piece.replace("\u2581", " ")
    return piece[2:] if piece.startswith("##") else f" {piece}"
