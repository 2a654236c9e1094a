import shutil

import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.records.framing import read_records_with_ends
from albert_tf.training.failures import failures_as_sentences

RECORDS = GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"


@pytest.mark.parametrize("damage", ["one bit", "cut short"])
def test_a_damaged_record_is_named_with_its_file_and_offset(tmp_path, damage):
    good, bad = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    for file in (good, bad):
        shutil.copy(RECORDS, file)
    ends = [end for _, end in read_records_with_ends(bad)]
    content = bytearray(bad.read_bytes())
    if damage == "one bit":
        content[ends[6] + 40] ^= 1
    bad.write_bytes(content if damage == "one bit" else content[: ends[7] - 9])
    with pytest.raises(UserError, match=rf"b.tfrecord .*at byte {ends[6]}"), failures_as_sentences([good, bad]):
        list(tf.data.TFRecordDataset([str(good), str(bad)]))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), "out of memory .* --gradient_accum"),
        (tf.errors.ResourceExhaustedError(None, None, "a; No space left on device"), "the disk is full"),
        (tf.errors.UnavailableError(None, None, "failed to connect"), "a worker or device has stopped answering"),
        (
            tf.errors.InvalidArgumentError(None, None, "assertion failed: [a token id outside the vocabulary] [612]"),
            r"a record has a token id outside the vocabulary \(612\)",
        ),
        (
            tf.errors.InvalidArgumentError(None, None, "Key: input_ids.  Can't parse serialized Example."),
            "other features than the first one",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_tensorflow_raises_becomes_a_sentence(error, sentence):
    with pytest.raises(UserError, match=sentence), failures_as_sentences([]):
        raise error


def test_what_is_not_understood_stays_as_it_is():
    error = tf.errors.InvalidArgumentError(None, None, "something else")
    with pytest.raises(tf.errors.InvalidArgumentError), failures_as_sentences([]):
        raise error
