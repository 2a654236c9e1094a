"""Records to batches, in an order that is a function of (seed, epoch, position).

A resumed run therefore needs nothing but its step to see the data that an uninterrupted run would.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.records.contract import RECORD_FEATURES, UNMASKED_FEATURES, RecordFeature, decode_example
from albert_tf.records.framing import count_records, read_records
from albert_tf.records.manifest import RecordsDirectory
from albert_tf.training.failures import OUTSIDE_VOCABULARY

_SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 8
_EVALUATION_SEED = 0  # every evaluation masks the same tokens
_NOT_TRAINED_ON = ("token_boundary",)


class Records(NamedTuple):
    """Files of records and their common shape."""

    files: list[Path]
    counts: list[int]  # examples of each file
    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    masking: DynamicMasking | None  # of records that hold no masks

    @property
    def num_examples(self) -> int:
        """Examples of all files."""
        return sum(self.counts)

    @property
    def features(self) -> list[RecordFeature]:
        """The features that training reads from the files."""
        return _features(self.masking)


def open_records(
    files: Sequence[Path],
    *,
    directory: RecordsDirectory | None,
    max_seq_length: int | None,
    max_predictions_per_seq: int | None,
    vocab_size: int,
) -> Records:
    """Checks the first record of every file against the lengths asked for (None: those of the first file).

    Raises UserError for a file that is not of pre-training records, lengths that differ, or no record at all.
    """
    asked = {"max_seq_length": max_seq_length, "max_predictions_per_seq": max_predictions_per_seq}
    if directory is not None:
        for name, value in asked.items():
            recorded = getattr(directory.manifest, name)
            if value not in (None, recorded):
                raise UserError(f"--{name}={value}, but the records of {directory.path} were made with {recorded}; "
                                "drop the flag, or make records with that length")  # fmt: skip
            asked[name] = recorded
    masking = DynamicMasking.of(directory)
    counts = []
    for file in tqdm(files, desc="Opening records", unit="file", mininterval=1.0, disable=len(files) < 100):
        first = next(read_records(file), None)
        if first is not None:
            for name, length in _record_lengths(first, file, _features(masking)).items():
                if asked[name] not in (None, length):
                    raise UserError(
                        f"{file} holds records of {name}={length}, and {asked[name]} is asked for; "
                        f"set --{name}={length}, or make the records again"
                    )
                asked[name] = length
        counts.append(count_records(file) if directory is None else directory.manifest.shards[file.name].examples)
    if not sum(counts):
        raise UserError(f"there is no record in {', '.join(map(str, files[:3]))}")
    lengths = (asked["max_seq_length"] or 0, asked["max_predictions_per_seq"] or 0)
    return Records(list(files), counts, *lengths, vocab_size, masking)


def _record_lengths(record: bytes, file: Path, features: Sequence[RecordFeature]) -> dict[str, int]:
    """Returns the lengths of a record's features by the setting that gives them."""
    # Without a TensorFlow operation, since several workers must be joined before the first.
    try:
        parsed = decode_example(record)
    except UserError:
        parsed = {}
    lengths: dict[str, int] = {}
    for feature in features:
        values = parsed.get(feature.name)
        length = len(values) if values is not None and values.dtype == feature.dtype else 0
        if length == 0 or lengths.setdefault(feature.length or "", length) != length:
            names = ", ".join(f.name for f in features)
            raise UserError(f"{file} does not hold ALBERT pre-training records: each needs the features {names} "
                            f"of consistent lengths; {feature.name} has {length} values")  # fmt: skip
    lengths.pop("")
    return lengths


def training_dataset(records: Records, *, batch_size: int, seed: int, start_step: int, rows: slice) -> tf.data.Dataset:
    """Returns these rows of endless batches of `batch_size` (global), from where `start_step` steps lead to.

    Each epoch reads the files in another order, several at once, through a shuffle buffer. TensorFlow's global seed
    takes part in the order; a run sets it to its own.
    """
    paths = [str(path) for path in records.files]
    start_epoch, start = divmod(start_step * batch_size, records.num_examples)

    def epoch_dataset(epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.constant(paths), seed=tf.stack([tf.cast(seed, tf.int64), epoch])
        )
        serialized = tf.data.Dataset.from_tensor_slices(order).interleave(
            tf.data.TFRecordDataset, cycle_length=min(len(paths), _FILES_AT_ONCE), block_length=4
        )
        epoch_seed = tf.random.experimental.stateless_fold_in(tf.constant([seed, 1], tf.int64), epoch)
        return serialized.shuffle(_SHUFFLE_BUFFER, seed=epoch_seed[0], reshuffle_each_iteration=False)

    epochs = tf.data.Dataset.range(start_epoch, tf.int64.max)
    dataset = epochs.flat_map(epoch_dataset).skip(start).batch(batch_size, drop_remainder=True)
    dataset = dataset.map(
        lambda serialized: _parse(serialized[rows], records), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    dataset = _masked(dataset, records, batch_size=batch_size, seed=seed, start_step=start_step, rows=rows)
    # Workers would otherwise ask each other at every step whether all have a batch, of a size known only then.
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return _with_options(dataset.prefetch(tf.data.AUTOTUNE))


def evaluation_dataset(records: Records, *, batch_size: int, max_steps: int | None, rows: slice) -> tf.data.Dataset:
    """Returns these rows of batches with every record once, in file order.

    Rows that fill up the last batch have an `example_weights` of 0.
    """
    size = len(range(*rows.indices(batch_size)))
    dataset = tf.data.TFRecordDataset([str(path) for path in records.files]).batch(batch_size)
    dataset = dataset.map(lambda serialized: _parse(serialized[rows], records))
    dataset = _masked(dataset, records, batch_size=batch_size, seed=_EVALUATION_SEED, start_step=0, rows=rows)
    dataset = dataset.map(lambda batch: _fill_up(batch, size))
    if max_steps is not None:
        dataset = dataset.take(max_steps)
    return _with_options(dataset.prefetch(tf.data.AUTOTUNE))


def _masked(
    dataset: tf.data.Dataset, records: Records, *, batch_size: int, seed: int, start_step: int, rows: slice
) -> tf.data.Dataset:
    """Masks the batches of records that hold no masks; an example's number counts from the start of the run."""
    if records.masking is None:
        return dataset
    mask, first_row = records.masking.masker(seed), rows.start or 0
    return dataset.enumerate(start_step).map(
        lambda step, batch: mask(step * batch_size + first_row, batch),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _features(masking: DynamicMasking | None) -> list[RecordFeature]:
    features = RECORD_FEATURES if masking is None else UNMASKED_FEATURES
    return [feature for feature in features if feature.name not in _NOT_TRAINED_ON]


def _parse(serialized: tf.Tensor, records: Records) -> dict[str, tf.Tensor]:
    """Parses serialized examples [batch] to int32 and float32 tensors [batch, length]."""
    spec = {
        feature.name: tf.io.FixedLenFeature(
            [getattr(records, feature.length) if feature.length else 1], tf.as_dtype(feature.dtype)
        )
        for feature in records.features
    }
    batch = tf.io.parse_example(serialized, spec)
    for name in {"input_ids", "masked_lm_ids"} & set(batch):
        # Accelerators read zeros where a table has no such row, and say nothing.
        outside = tf.reduce_any((batch[name] < 0) | (batch[name] >= records.vocab_size))
        tf.debugging.Assert(~outside, [OUTSIDE_VOCABULARY, tf.reduce_max(batch[name])])
    batch = {name: tf.cast(t, tf.int32) if t.dtype == tf.int64 else t for name, t in batch.items()}
    batch["example_weights"] = tf.ones_like(batch["next_sentence_labels"][:, 0], tf.float32)
    return batch


def _fill_up(batch: dict[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    """Adds rows of zeros up to `batch_size`."""

    def fill(tensor: tf.Tensor) -> tf.Tensor:
        rows = [[0, batch_size - tf.shape(tensor)[0]]] + [[0, 0]] * (tensor.shape.rank - 1)
        return tf.ensure_shape(tf.pad(tensor, rows), [batch_size, *tensor.shape[1:]])

    return {name: fill(tensor) for name, tensor in batch.items()}


def _with_options(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps tf.distribute from splitting files among workers: every worker sees every global batch."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.deterministic = True
    return dataset.with_options(options)
