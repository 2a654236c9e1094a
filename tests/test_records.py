import itertools

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.records import RECORD_FEATURES, count_records, decode_example, encode_examples, frame, read_records

RECORDS = GOLDEN / "pretraining_records"


def test_the_originals_records_read_the_same_through_our_framing():
    path = RECORDS / "alice_seq64.tfrecord"
    records = list(read_records(path))
    assert records == [r.numpy() for r in tf.data.TFRecordDataset(str(path))]
    assert count_records(path) == len(records) == 445


def test_encoded_examples_parse_to_the_arrays_they_came_from(tmp_path):
    arrays = dict(np.load(RECORDS / "alice_seq64.npz"))
    arrays["input_ids"][0, :6] = [0, 127, 128, 16383, 16384, 2**31 - 1]  # every varint length
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(frame(example) for example in encode_examples(arrays)))
    spec = {f.name: tf.io.FixedLenFeature(arrays[f.name].shape[1:], tf.as_dtype(f.dtype)) for f in RECORD_FEATURES}
    for row, record in enumerate(tf.data.TFRecordDataset(str(path))):
        parsed = tf.io.parse_single_example(record, spec)
        for name, value in parsed.items():
            assert np.array_equal(value, arrays[name][row]), (row, name)


def test_our_encoding_holds_what_the_originals_does():
    arrays = dict(np.load(RECORDS / "alice_seq64.npz"))
    theirs = tf.train.Example.FromString(next(read_records(RECORDS / "alice_seq64.tfrecord")))
    assert tf.train.Example.FromString(encode_examples(arrays)[0]) == theirs


def test_examples_are_decoded_as_tensorflow_does():
    for record in itertools.islice(read_records(RECORDS / "alice_seq64.tfrecord"), 20):
        theirs = tf.train.Example.FromString(record).features.feature
        ours = decode_example(record)
        assert set(ours) == set(theirs)
        for name, feature in theirs.items():
            assert np.array_equal(ours[name], feature.int64_list.value or feature.float_list.value)
    unpacked = b"\x0a\x0c\x0a\x0a\x0a\x01x\x12\x05\x1a\x03\x08\x96\x01"  # as some writers store a list
    assert decode_example(unpacked)["x"].tolist() == [150]
    with pytest.raises(UserError, match="not a tf.train.Example"):
        decode_example(b"\xff\xff")


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
