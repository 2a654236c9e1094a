import json
import shutil

import pytest

from albert_tf.errors import UserError
from albert_tf.records.manifest import Manifest, RecordsDirectory


def test_records_find_their_manifest_and_tokenizer(alice_records):
    found = RecordsDirectory.of_files(sorted(alice_records.glob("train-*")))
    assert found.manifest.max_seq_length == 32
    assert found.load_tokenizer().vocab_size == found.manifest.vocab_size == 600
    counts = found.load_token_counts()
    assert counts.sum() == found.manifest.statistics["train"]["tokens"]


def test_files_without_a_manifest_have_no_directory(tmp_path):
    (tmp_path / "a.tfrecord").touch()
    assert RecordsDirectory.of_files([tmp_path / "a.tfrecord"]) is None


def test_unfinished_records_are_refused(tmp_path):
    (tmp_path / ".spill").mkdir()
    (tmp_path / "train-00000-of-00002.tfrecord").touch()
    with pytest.raises(UserError, match="are not finished; repeat the command"):
        RecordsDirectory.of_files([tmp_path / "train-00000-of-00002.tfrecord"])


def test_a_file_from_elsewhere_is_refused(alice_records, tmp_path):
    (tmp_path / "train-x.tfrecord").touch()
    with pytest.raises(UserError, match="must come from one directory"):
        RecordsDirectory.of_files([*alice_records.glob("train-*"), tmp_path / "train-x.tfrecord"])


def test_a_file_that_the_manifest_lists_may_not_be_missing_where_all_are_needed(alice_records, tmp_path):
    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    first, second = sorted(records.glob("train-*"))
    for file in records.glob("eval-*"):  # of another kind
        file.unlink()
    assert RecordsDirectory.of_files([first], complete=True)  # a choice of those that are there
    second.unlink()
    assert RecordsDirectory.of_files([first])
    with pytest.raises(UserError, match=f"{second.name} is missing: copy it again"):
        RecordsDirectory.of_files([first], complete=True)


def test_one_directory_may_be_spelled_in_several_ways(alice_records, tmp_path):
    first, second = sorted(alice_records.glob("train-*"))
    (tmp_path / "link").symlink_to(alice_records)
    assert RecordsDirectory.of_files([first, tmp_path / "link" / second.name]).path == alice_records.resolve()


@pytest.mark.parametrize("damage", ["cut short", "overwritten", "swapped"])
def test_a_file_of_another_size_than_was_written_is_refused(alice_records, tmp_path, damage):
    records = tmp_path / "records"
    shutil.copytree(alice_records, records)
    first, second = sorted(records.glob("train-*"))
    before, other = first.read_bytes(), second.read_bytes()
    if damage == "swapped":
        first.write_bytes(other)
        second.write_bytes(before)
    else:
        first.write_bytes(before[:-1] if damage == "cut short" else before + b"x")
    found = first.stat().st_size
    message = f"{first.name} has {found:,} bytes, and {len(before):,} were written: copy it again"
    with pytest.raises(UserError, match=message):
        RecordsDirectory.of_files([first, second])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format_version": 1}, "format version 2.*make the records again"), ({"extra": 1}, "other fields than expected")],
)
def test_other_versions_and_fields_are_refused(alice_records, tmp_path, change, message):
    values = json.loads((alice_records / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(UserError, match=message):
        Manifest.load(tmp_path)
