import itertools

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.pretraining.batches import evaluation_dataset, open_records, training_dataset
from albert_tf.records.manifest import RecordsDirectory

GOLDEN_FILE = GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"


def golden_records(**asked):
    return open_records(
        [GOLDEN_FILE],
        directory=None,
        **{"max_seq_length": None, "max_predictions_per_seq": None, "vocab_size": 30000, **asked},
    )


@pytest.fixture(scope="module")
def records(alice_records):
    files = sorted(alice_records.glob("train-*"))
    return open_records(
        files,
        directory=RecordsDirectory.of_files(files),
        max_seq_length=None,
        max_predictions_per_seq=None,
        vocab_size=600,
    )


def ids(records, *, steps, start_step=0, batch_size=8, seed=3, rows=slice(None)):
    dataset = training_dataset(records, batch_size=batch_size, seed=seed, start_step=start_step, rows=rows)
    return [batch["input_ids"].numpy() for batch in itertools.islice(dataset, steps)]


def test_the_originals_records_are_read_and_their_lengths_found():
    records = golden_records()
    assert (records.num_examples, records.max_seq_length, records.max_predictions_per_seq) == (445, 64, 10)
    expected = np.load(GOLDEN / "pretraining_records" / "alice_seq64.npz")
    batches = list(evaluation_dataset(records, batch_size=100, max_steps=None, rows=slice(None)))
    for name in ("input_ids", "masked_lm_weights", "next_sentence_labels"):
        assert np.array_equal(np.concatenate([b[name] for b in batches])[:445], expected[name])


def test_the_last_evaluation_batch_is_filled_up_with_rows_of_weight_zero():
    batches = list(evaluation_dataset(golden_records(), batch_size=100, max_steps=None, rows=slice(None)))
    assert [b["input_ids"].shape for b in batches] == [(100, 64)] * 5
    assert sum(float(b["example_weights"].numpy().sum()) for b in batches) == 445
    assert not batches[-1]["masked_lm_weights"][45:].numpy().any()
    assert len(list(evaluation_dataset(golden_records(), batch_size=100, max_steps=2, rows=slice(None)))) == 2


def test_every_epoch_has_every_example_once_in_another_order(records):
    epoch = records.num_examples
    rows = np.concatenate(ids(records, steps=2 * epoch, batch_size=1))
    first, second = rows[:epoch], rows[epoch:]
    key = lambda a: sorted(map(bytes, a))  # noqa: E731
    assert key(first) == key(second)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("start_step", [1, 7, 40, 100])
def test_a_resumed_run_sees_what_an_uninterrupted_one_would(records, start_step):
    whole = ids(records, steps=start_step + 5)
    resumed = ids(records, steps=5, start_step=start_step)
    assert all(np.array_equal(a, b) for a, b in zip(whole[start_step:], resumed, strict=True))


def test_workers_see_the_rows_of_the_global_batches(records):
    whole = ids(records, steps=20)
    parts = [ids(records, steps=20, rows=slice(first, first + 2)) for first in (0, 2, 4, 6)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert np.array_equal(batch, np.concatenate(shares))


def test_workers_evaluate_every_record_once():
    shares = [
        batch
        for first in (0, 50)
        for batch in evaluation_dataset(golden_records(), batch_size=100, max_steps=None, rows=slice(first, first + 50))
    ]
    assert {batch["input_ids"].shape[0] for batch in shares} == {50}
    seen = [row for b in shares for row in b["input_ids"].numpy()[b["example_weights"].numpy() > 0]]
    expected = np.load(GOLDEN / "pretraining_records" / "alice_seq64.npz")["input_ids"]
    assert sorted(map(bytes, seen)) == sorted(map(bytes, expected.astype(np.int32)))


def test_a_token_id_outside_the_vocabulary_stops(records):
    with pytest.raises(tf.errors.InvalidArgumentError, match="a token id outside the vocabulary"):
        ids(records._replace(vocab_size=300), steps=50)


def test_the_seed_decides_the_order(records):
    assert not np.array_equal(ids(records, steps=1, seed=3), ids(records, steps=1, seed=4))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_seq_length": 128}, "max_seq_length=64, and 128 is asked for; set --max_seq_length=64"),
        ({"max_predictions_per_seq": 20}, "max_predictions_per_seq=10, and 20 is asked for"),
    ],
)
def test_records_of_another_length_are_refused_by_the_flags_name(asked, message):
    with pytest.raises(UserError, match=message):
        golden_records(**asked)


def test_a_flag_that_contradicts_the_manifest_is_refused(alice_records):
    files = sorted(alice_records.glob("train-*"))
    with pytest.raises(UserError, match="--max_seq_length=64, but the records of .* were made with 32"):
        open_records(
            files,
            directory=RecordsDirectory.of_files(files),
            max_seq_length=64,
            max_predictions_per_seq=None,
            vocab_size=600,
        )


def test_files_of_something_else_are_refused(tmp_path):
    other, empty, text = tmp_path / "other", tmp_path / "empty", tmp_path / "text"
    feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))}
    with tf.io.TFRecordWriter(str(other)) as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    empty.touch()
    text.write_text("Some plain text, long enough to have a header.\n")
    lengths = {"max_seq_length": None, "max_predictions_per_seq": None, "vocab_size": 600}
    for path, message in [
        (other, "does not hold ALBERT pre-training records"),
        (empty, "there is no record"),
        (text, "is not a TFRecord file"),
    ]:
        with pytest.raises(UserError, match=message):
            open_records([path], directory=None, **lengths)
