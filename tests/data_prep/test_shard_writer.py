import resource

import numpy as np
import pytest

from albert_tf.errors import UserError
from albert_tf.records.framing import read_records
from albert_tf_data_prep import shard_writer
from albert_tf_data_prep.shard_writer import EVAL_SHARD, SpillWriter, committed_results, shard_name, write_shard


def spill(directory, unit, examples, shards, keys):
    with SpillWriter(directory, unit_number=unit) as writer:
        half = len(examples) // 2
        for part in (slice(0, half), slice(half, None)):
            writer.write(examples[part], shards=np.array(shards[part]), keys=np.array(keys[part], np.uint64))
        writer.commit(total=np.array(unit * 10))


def test_a_shard_holds_its_examples_in_the_order_of_their_keys(tmp_path):
    spill(tmp_path, 0, [b"a", b"b", b"c", b"d"], [0, 1, 0, EVAL_SHARD], [9, 1, 3, 0])
    spill(tmp_path, 1, [b"e", b"f"], [0, 0], [2**64 - 1, 5])
    spill(tmp_path, 2, [], [], [])
    for shard, expected in [(0, [b"c", b"f", b"a", b"e"]), (1, [b"b"]), (EVAL_SHARD, [b"d"]), (7, [])]:
        path = tmp_path / f"shard{shard}"
        assert write_shard(tmp_path, path, shard=shard) == len(expected)
        assert list(read_records(path)) == expected


def test_many_runs_and_blocks_give_the_same_shard(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    for unit in range(3):
        examples = [rng.bytes(int(n)) for n in rng.integers(1, 200, 100)]
        spill(tmp_path, unit, examples, rng.integers(0, 3, 100), rng.integers(0, 2**64, 100, np.uint64))
    for shard in range(3):
        write_shard(tmp_path, tmp_path / f"whole{shard}", shard=shard)
    rng = np.random.default_rng(1)
    monkeypatch.setattr(shard_writer, "_RUN_BYTES", 300)
    monkeypatch.setattr(shard_writer, "_BLOCK_BYTES", 500)
    for unit in range(3):
        examples = [rng.bytes(int(n)) for n in rng.integers(1, 200, 100)]
        spill(tmp_path, unit, examples, rng.integers(0, 3, 100), rng.integers(0, 2**64, 100, np.uint64))
    for shard in range(3):
        write_shard(tmp_path, tmp_path / "parts", shard=shard)
        assert (tmp_path / "parts").read_bytes() == (tmp_path / f"whole{shard}").read_bytes()


def test_a_shortened_unit_is_noticed(tmp_path):
    spill(tmp_path, 0, [b"a", b"b"], [0, 0], [1, 2])
    with open(tmp_path / "unit-00000000.records", "rb+") as stream:
        stream.truncate(20)
    with pytest.raises(UserError, match="is damaged; delete"):
        write_shard(tmp_path, tmp_path / "shard", shard=0)


def test_more_units_than_a_process_may_have_files_open(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (tmp_path / "spill").mkdir()
    for unit in range(300):
        spill(tmp_path / "spill", unit, [b"%d" % unit], [0], [(unit * 7) % 300])
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 280), hard))
    try:
        assert write_shard(tmp_path / "spill", tmp_path / "shard", shard=0) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(set(read_records(tmp_path / "shard"))) == 300


def test_results_of_committed_units_come_back(tmp_path):
    for unit in (0, 12):
        spill(tmp_path, unit, [b"a"], [0], [1])
    assert [committed_results(tmp_path, unit) for unit in (0, 12)] == [{"total": 0}, {"total": 120}]


def test_a_unit_that_fails_has_no_index(tmp_path):
    with pytest.raises(RuntimeError), SpillWriter(tmp_path, unit_number=0) as writer:
        writer.write([b"a"], shards=np.array([0]), keys=np.array([1], np.uint64))
        raise RuntimeError
    assert committed_results(tmp_path, 0) is None
    assert [path.name for path in tmp_path.iterdir()] == ["unit-00000000.records"]


def test_names_sort_and_tell_how_many_there_are():
    assert shard_name("train", 3, count=12) == "train-00003-of-00012.tfrecord"
