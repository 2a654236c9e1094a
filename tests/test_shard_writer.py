import resource

import numpy as np
import pytest

from albert_tf.records import read_records
from data_prep.shard_writer import EVAL_SHARD, SpillWriter, committed_results, shard_name, write_shard


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
    results = committed_results(tmp_path)
    assert {number: int(arrays["total"]) for number, arrays in results.items()} == {0: 0, 12: 120}


def test_a_unit_that_fails_has_no_index(tmp_path):
    with pytest.raises(RuntimeError), SpillWriter(tmp_path, unit_number=0) as writer:
        writer.write([b"a"], shards=np.array([0]), keys=np.array([1], np.uint64))
        raise RuntimeError
    assert committed_results(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["unit-00000000.records"]


def test_names_sort_and_tell_how_many_there_are():
    assert shard_name("train", 3, 12) == "train-00003-of-00012.tfrecord"
