import itertools

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.records.contract import RECORD_FEATURES, decode_example, encode_examples
from albert_tf.records.framing import frame, read_records

RECORDS = GOLDEN / "pretraining_records"


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
