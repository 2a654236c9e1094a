"""Examples to shards: workers spill them unsorted, then each shard is put in random order and renamed into place."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import whole_file
from albert_tf.records import frame

EVAL_SHARD = -1

_INDEX_DTYPE = np.dtype([("shard", "<i8"), ("key", "<u8"), ("offset", "<i8"), ("length", "<i8")])


def shard_name(split: str, index: int, count: int) -> str:
    """Returns the file name of a shard."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


class SpillWriter:
    """Appends a unit's framed records to one file; `commit` writes the index, which makes the unit count."""

    def __init__(self, directory: Path, *, unit_number: int) -> None:
        self._path = directory / f"unit-{unit_number:08d}.records"
        self._index: list[np.ndarray] = []
        self._offset = 0

    def __enter__(self) -> "SpillWriter":
        self._stream = open(self._path, "wb")  # noqa: SIM115 (closed by __exit__)
        return self

    def write(self, examples: Sequence[bytes], *, shards: np.ndarray, keys: np.ndarray) -> None:
        """Adds records with the shard of each (EVAL_SHARD: the held-out file) and the key that orders it there."""
        framed = [frame(example) for example in examples]
        index = np.zeros(len(framed), _INDEX_DTYPE)
        index["shard"], index["key"] = shards, keys
        index["length"] = [len(record) for record in framed]
        index["offset"] = self._offset + np.cumsum(index["length"]) - index["length"]
        self._stream.write(b"".join(framed))
        self._offset += int(index["length"].sum())
        self._index.append(index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def commit(self, **results: np.ndarray) -> None:
        """Ends the unit. `results` are kept beside its index, for a run that is continued after a kill."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        index = np.concatenate([np.zeros(0, _INDEX_DTYPE), *self._index])
        with whole_file(self._path.with_suffix(".npz")) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, allow_pickle=False, index=index, **results)


def committed_results(directory: Path) -> dict[int, dict[str, np.ndarray]]:
    """Returns the results of the units that were committed, by unit number."""
    results = {}
    for path in directory.glob("unit-*.npz"):
        with np.load(path) as arrays:
            results[int(path.stem.split("-")[1])] = {name: arrays[name] for name in arrays if name != "index"}
    return results


def write_shard(spill_directory: Path, path: Path, *, shard: int) -> int:
    """Writes one shard from all spilled units in the order of the examples' keys; returns the number of examples.

    Keys are hashes, so this is a random permutation of the shard; an example's shard is random too.
    """
    units = sorted(spill_directory.glob("unit-*.records"))
    numbers, indexes = [], []
    for number, unit in enumerate(units):
        with np.load(unit.with_suffix(".npz")) as arrays:
            index = arrays["index"]
        indexes.append(index[index["shard"] == shard])
        numbers.append(np.full(len(indexes[-1]), number))
    unit_numbers, index = np.concatenate(numbers), np.concatenate(indexes)
    order = np.lexsort((index["offset"], unit_numbers, index["key"]))
    rows = (unit_numbers[order].tolist(), index["offset"][order].tolist(), index["length"][order].tolist())
    with whole_file(path) as temporary, open(temporary, "wb") as output:
        for number, offset, length in zip(*rows, strict=True):
            output.write(_read(units[number], offset, length))
    return len(order)


def _read(unit: Path, offset: int, length: int) -> bytes:
    """Returns `length` bytes of a unit's file; one that is shorter than its index says raises UserError.

    Opened for each record: there may be more units than file descriptors, and mapped files would count as memory.
    """
    descriptor = os.open(unit, os.O_RDONLY)
    try:
        record = os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)
    if len(record) != length:
        raise UserError(f"{unit} is damaged; delete {unit.parent} and start again")
    return record
