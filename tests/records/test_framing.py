import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.records.framing import count_records, read_records

RECORDS = GOLDEN / "pretraining_records"


def test_the_originals_records_read_the_same_through_our_framing():
    path = RECORDS / "alice_seq64.tfrecord"
    records = list(read_records(path))
    assert records == [r.numpy() for r in tf.data.TFRecordDataset(str(path))]
    assert count_records(path) == len(records) == 445


def test_damage_is_noticed(tmp_path):
    data = (RECORDS / "alice_seq64.tfrecord").read_bytes()
    cut, flipped, text = tmp_path / "cut", tmp_path / "flipped", tmp_path / "text"
    cut.write_bytes(data[:-5])
    flipped.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    text.write_text("This is a text file, and not records.\n")
    for reader in (count_records, lambda path: list(read_records(path))):
        with pytest.raises(UserError, match="cut short"):
            reader(cut)
        with pytest.raises(UserError, match="not a TFRecord file"):
            reader(text)
    with pytest.raises(UserError, match="the checksum of the record at byte 0 is wrong"):
        list(read_records(flipped))
