"""One unit of work: some documents to encoded examples in a spill file. Runs in worker processes."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_tf.records.contract import RECORD_FEATURES, UNMASKED_FEATURES, encode_examples
from albert_tf.records.keyed_random import derive_keys, uniforms
from albert_tf.records.masking import MaskingSettings, mask_examples, token_boundaries
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf.text.tokenizer_files import Tokenizer
from albert_tf_data_prep.documents import Document
from albert_tf_data_prep.record_statistics import count_examples
from albert_tf_data_prep.sentence_pairs import Pairs, Unit, document_key, lay_out, make_pairs
from albert_tf_data_prep.shard_writer import EVAL_SHARD, SpillWriter

# Characters of text in a unit; they bound a worker's memory. The first units are small, so that a small text is enough
# for several processes; later ones are larger, so that a large text makes fewer files.
_FIRST_UNIT_CHARACTERS, _UNIT_CHARACTERS = 2**18, 2**20
_UNITS_OF_A_SIZE = 16
_NSP_MIN_DOCUMENTS = 8  # so that a random B has other documents to come from
_SENTENCES_AT_ONCE = 1024
_POSITIONS_AT_ONCE = 2**18  # of examples; few enough for a core's cache, enough to spread the cost of each step

_EVAL_STREAM, _SHARD_STREAM = 101, 102  # streams of random numbers


class UnitTask(NamedTuple):
    """What a worker is sent."""

    number: int
    documents: list[Document]


class UnitResult(NamedTuple):
    """What a worker answers; its examples are in the spill file."""

    counts: collections.Counter
    token_counts: np.ndarray  # int64 [vocab_size], of training documents

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the result as arrays that np.savez takes."""
        names, values = np.array(list(self.counts)), np.array(list(self.counts.values()), np.int64)
        return {"count_names": names, "count_values": values, "token_counts": self.token_counts}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "UnitResult":
        """Undoes `to_arrays`."""
        names, values = arrays["count_names"].tolist(), arrays["count_values"].tolist()
        return cls(collections.Counter(dict(zip(names, values, strict=True))), arrays["token_counts"])


class UnitWorker:
    """Makes the examples of work units; one for each process."""

    def __init__(self, config: RecordsConfig, tokenizer: Tokenizer, spill_directory: Path) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._spill_directory = spill_directory
        self._masking: MaskingSettings | None = None
        self._features = RECORD_FEATURES if config.masking == "static" else UNMASKED_FEATURES
        if config.masking == "static":
            values = {**dataclasses.asdict(config), "max_predictions_per_seq": config.predictions_per_seq}
            self._masking = MaskingSettings.of(values)

    def run(self, task: UnitTask) -> UnitResult:
        """Tokenises a unit's documents once, makes all passes of examples, and spills them."""
        counts: collections.Counter = collections.Counter()
        keys = np.array([document_key(self._config.random_seed, d.file_index, d.index_in_file) for d in task.documents])
        held_out = uniforms(derive_keys(keys, _EVAL_STREAM), 1)[:, 0] < self._config.eval_fraction
        token_counts = np.zeros(self._tokenizer.vocab_size, np.int64)
        with SpillWriter(self._spill_directory, unit_number=task.number) as spill:
            for split, members in (("train", ~held_out), ("eval", held_out)):
                unit = self._tokenize([task.documents[i] for i in np.flatnonzero(members)], keys[members])
                self._count_documents(unit, split, counts)
                counts[f"{split}/documents_without_token"] += int(members.sum()) - len(unit.document_ends)
                counts["input/documents"] += int(members.sum())
                if split == "train":
                    token_counts += np.bincount(unit.tokens, minlength=len(token_counts))
                if self._config.pair_task == "nsp" and len(unit.document_ends) < 2:
                    counts[f"{split}/documents_without_another"] += len(unit.document_ends)
                    continue
                for pass_index in range(self._config.dupe_factor if split == "train" else 1):
                    self._spill_pass(unit, split, pass_index, spill, counts)
            counts["input/characters"] = sum(len(sentence) for d in task.documents for sentence in d.sentences)
            result = UnitResult(counts, token_counts)
            spill.commit(**result.to_arrays())
        return result

    def _tokenize(self, documents: list[Document], keys: np.ndarray) -> Unit:
        """Returns documents as one flat array; sentences without a token and documents without a sentence drop out."""
        sentences_of_text = [sentence for document in documents for sentence in document.sentences]
        parts, lengths_of_parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for begin in range(0, len(sentences_of_text), _SENTENCES_AT_ONCE):
            ids = self._tokenizer.encode_batch(sentences_of_text[begin : begin + _SENTENCES_AT_ONCE])
            lengths_of_parts.append(np.array([len(sentence) for sentence in ids], np.int64))
            parts.append(np.fromiter(itertools.chain.from_iterable(ids), np.int32))
        tokens, lengths = np.concatenate(parts), np.concatenate(lengths_of_parts)
        document_of_sentence = np.repeat(np.arange(len(documents)), [len(d.sentences) for d in documents])
        sentences = np.bincount(document_of_sentence[lengths > 0], minlength=len(documents))
        kept = sentences > 0
        return Unit(tokens, np.cumsum(lengths[lengths > 0]), np.cumsum(sentences[kept]), keys[kept])

    def _count_documents(self, unit: Unit, split: str, counts: collections.Counter) -> None:
        sentences = np.diff(unit.document_ends, prepend=0)
        counts[f"{split}/documents"] += len(sentences)
        counts[f"{split}/sentences"] += int(sentences.sum())
        counts[f"{split}/tokens"] += len(unit.tokens)
        counts[f"{split}/unknown_tokens"] += int((unit.tokens == self._tokenizer.unk_id).sum())
        if self._config.pair_task != "none":
            counts[f"{split}/documents_of_one_sentence"] += int((sentences == 1).sum())

    def _spill_pass(
        self, unit: Unit, split: str, pass_index: int, spill: SpillWriter, counts: collections.Counter
    ) -> None:
        pairs = make_pairs(
            unit,
            pass_index=pass_index,
            max_seq_length=self._config.max_seq_length,
            short_seq_prob=self._config.short_seq_prob,
            pair_task=self._config.pair_task,
        )
        counts[f"{split}/truncated_tokens"] += int(pairs.cut_tokens.sum())
        at_once = max(1, _POSITIONS_AT_ONCE // self._config.max_seq_length)
        for begin in range(0, len(pairs.keys), at_once):
            part = pairs.part(begin, begin + at_once)
            batch = self._make_batch(unit, part)
            for name, value in count_examples(batch, mask_id=self._tokenizer.mask_id).items():
                counts[f"{split}/{name}"] += value
            shards = derive_keys(part.keys, _SHARD_STREAM) % np.uint64(self._config.num_shards)
            shards = shards.astype(np.int64) if split == "train" else np.full(len(part.keys), EVAL_SHARD)
            spill.write(encode_examples(batch, self._features), shards=shards, keys=part.keys)

    def _make_batch(self, unit: Unit, pairs: Pairs) -> dict[str, np.ndarray]:
        """Returns the arrays of the record contract."""
        tokenizer = self._tokenizer
        batch = lay_out(
            unit,
            pairs,
            max_seq_length=self._config.max_seq_length,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
        )
        batch["next_sentence_labels"] = pairs.labels
        lengths = batch.pop("lengths")
        if self._masking is None:
            return {**batch, "token_boundary": token_boundaries(batch["input_ids"], tokenizer)}
        masked = mask_examples(
            batch["input_ids"], lengths, keys=pairs.keys, tokenizer=tokenizer, settings=self._masking
        )
        return {**batch, **masked._asdict()}


def pack_units(documents: Iterable[Document], *, pair_task: str) -> Iterator[UnitTask]:
    """Packs documents, in order, into units of some hundred kilobytes; the packing depends on the text alone."""
    least = _NSP_MIN_DOCUMENTS if pair_task == "nsp" else 1
    number, characters = 0, 0
    members: list[Document] = []
    for document in documents:
        members.append(document)
        characters += sum(map(len, document.sentences))
        enough = min(_FIRST_UNIT_CHARACTERS * (1 + number // _UNITS_OF_A_SIZE), _UNIT_CHARACTERS)
        if characters >= enough and len(members) >= least:
            yield UnitTask(number, members)
            number, characters, members = number + 1, 0, []
    if members:
        yield UnitTask(number, members)


_worker: UnitWorker | None = None


def start_worker(config: RecordsConfig, tokenizer: Tokenizer, spill_directory: Path) -> None:
    """Prepares a process for `run_unit`."""
    global _worker
    _worker = UnitWorker(config, tokenizer, spill_directory)


def run_unit(task: UnitTask) -> UnitResult:
    """Runs a unit in a process that `start_worker` prepared."""
    if _worker is None:
        raise RuntimeError("start_worker must run in this process first")
    return _worker.run(task)
