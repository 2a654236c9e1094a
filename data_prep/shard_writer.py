"""Examples to shards: workers spill them unsorted, then each shard is put in random order and renamed into place."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import whole_file
from albert_tf.records.framing import frame
from albert_tf.records.manifest import Shard

EVAL_SHARD = -1

_RUN_BYTES = 8 * 2**20  # of records that are sorted before they are spilled
_BLOCK_BYTES = 8 * 2**20  # of a shard that is put in order at once

# Where a record is in the unit's file. The index on disk is in the order of the shards.
_INDEX_DTYPE = np.dtype([("shard", "<i4"), ("length", "<i4"), ("key", "<u8"), ("offset", "<i8")])


def shard_name(split: str, index: int, *, count: int) -> str:
    """Returns the file name of a shard."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


class SpillWriter:
    """Spills a unit's framed records to one file; `commit` writes the index and the results, which make it count.

    The file is made of runs, each sorted by shard and key, so that a shard later reads a few long pieces of it.
    """

    def __init__(self, directory: Path, *, unit_number: int) -> None:
        self._path = directory / f"unit-{unit_number:08d}.records"
        self._run: list[bytes] = []
        self._run_index: list[np.ndarray] = []
        self._run_bytes = 0
        self._index: list[np.ndarray] = []

    def __enter__(self) -> "SpillWriter":
        self._stream = open(self._path, "wb")  # noqa: SIM115 (closed by __exit__)
        return self

    def write(self, examples: Sequence[bytes], *, shards: np.ndarray, keys: np.ndarray) -> None:
        """Adds records with the shard of each (EVAL_SHARD: the held-out file) and the key that orders it there."""
        framed = [frame(example) for example in examples]
        index = np.zeros(len(framed), _INDEX_DTYPE)
        index["shard"], index["key"] = shards, keys
        index["length"] = [len(record) for record in framed]
        self._run += framed
        self._run_index.append(index)
        self._run_bytes += int(index["length"].sum())
        if self._run_bytes >= _RUN_BYTES:
            self._write_run()

    def _write_run(self) -> None:
        index = np.concatenate([np.zeros(0, _INDEX_DTYPE), *self._run_index])
        order = np.lexsort((index["key"], index["shard"]))
        self._stream.write(b"".join([self._run[i] for i in order.tolist()]))
        self._index.append(index[order])
        self._run, self._run_index, self._run_bytes = [], [], 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def commit(self, **results: np.ndarray) -> None:
        """Ends the unit. `results` are kept beside its index, for a run that is continued after a kill."""
        self._write_run()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        index = np.concatenate(self._index)
        index["offset"] = np.cumsum(index["length"], dtype=np.int64) - index["length"]
        with whole_file(self._path.with_suffix(".index")) as temporary:
            index[np.argsort(index["shard"], kind="stable")].tofile(temporary)
        packed = io.BytesIO()  # a ZIP file on a full disk complains again when it is collected
        np.savez(packed, **results)  # type: ignore[arg-type]  # the stubs know allow_pickle, which NumPy 2.1 lacks
        with whole_file(self._path.with_suffix(".npz")) as temporary:
            temporary.write_bytes(packed.getbuffer())


def committed_results(directory: Path, unit_number: int) -> dict[str, np.ndarray] | None:
    """Returns the results of a unit that was committed, None of another."""
    try:
        with np.load(directory / f"unit-{unit_number:08d}.npz") as arrays:
            return dict(arrays)
    except FileNotFoundError:
        return None


class ShardTask(NamedTuple):
    """What a worker is told to write: a shard, from a directory of spilled units."""

    spill_directory: Path
    path: Path
    shard: int


def run_shard(task: ShardTask) -> tuple[int, Shard]:
    """Runs a task; returns the shard's number and what its file holds."""
    examples = write_shard(task.spill_directory, task.path, shard=task.shard)
    return task.shard, Shard(examples=examples, size_bytes=task.path.stat().st_size)


def write_shard(spill_directory: Path, path: Path, *, shard: int) -> int:
    """Writes one shard from all spilled units in the order of the examples' keys; returns the number of examples.

    Keys are hashes, so this is a random permutation of the shard; an example's shard is random too. Memory holds a
    block of neighbouring keys at a time, beside 24 bytes for each example of the shard.
    """
    units = sorted(spill_directory.glob("unit-*.records"))
    places = [_places_of_shard(unit, shard) for unit in units]
    blocks = 1 + sum(int(rows["length"].sum()) for rows in places) // _BLOCK_BYTES
    with whole_file(path) as temporary, open(temporary, "wb") as output:
        for block in range(blocks):
            records: list[bytes] = []
            keys = [np.zeros(0, np.uint64)]
            for unit, rows in zip(units, places, strict=True):
                part = rows[(rows["key"] >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32) == block]
                if len(part):
                    records += _read(unit, part)
                    keys.append(part["key"])
            order = np.argsort(np.concatenate(keys), kind="stable")
            output.write(b"".join([records[i] for i in order.tolist()]))
    return sum(map(len, places))


def _places_of_shard(unit: Path, shard: int) -> np.ndarray:
    """Returns where a unit's file has the records of a shard."""
    index = np.fromfile(unit.with_suffix(".index"), _INDEX_DTYPE)
    begin, end = np.searchsorted(index["shard"], [shard, shard + 1])
    return index[begin:end].copy()  # a part of the index would keep the whole in memory


def _read(unit: Path, places: np.ndarray) -> list[bytes]:
    """Returns the records at `places` of a unit's file; neighbours are read together.

    The file is opened each time, because there may be more units than file descriptors.
    """
    ends = places["offset"] + places["length"]
    gaps = np.flatnonzero(places["offset"][1:] != ends[:-1]) + 1
    records = []
    descriptor = os.open(unit, os.O_RDONLY)
    try:
        for piece in np.split(places, gaps):
            begin = int(piece["offset"][0])
            size = int(piece["length"].sum())
            data = os.pread(descriptor, size, begin)
            if len(data) < size:
                raise UserError(f"{unit} is damaged; delete {unit.parent} and start again")
            cuts = [0, *np.cumsum(piece["length"]).tolist()]
            records += [data[low:high] for low, high in zip(cuts, cuts[1:], strict=False)]
    finally:
        os.close(descriptor)
    return records
