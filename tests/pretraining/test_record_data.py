import checks
import numpy as np
import pytest
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.pretraining.record_data import describe_records, open_data
from albert_tf.settings.pretraining import PretrainConfig


def opened(alice_records, **changes):
    settings = {"albert_config_file": "x", "output_dir": "y", "input_file": f"{alice_records}/train-*"}
    return open_data(PretrainConfig(**{**settings, **changes}), checks.tiny_config(vocab_size=600))


def test_tokenizer_heads_and_frequencies_come_from_the_manifest(alice_records):
    data = opened(alice_records, eval_input_file=f"{alice_records}/eval-*")
    assert data.heads == ("masked_lm", "sentence_order") and data.tokenizer.vocab_size == 600
    assert data.shape is data.train and data.evaluation.max_seq_length == data.train.max_seq_length == 32
    assert np.exp(data.token_log_probs()).sum() == pytest.approx(1.0, rel=1e-4)


def test_records_without_a_manifest_have_no_tokenizer_of_their_own(alice_records):
    data = opened(alice_records, input_file=str(GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"))
    assert data.tokenizer is None and data.token_log_probs() is None


def test_the_description_changes_with_any_file(alice_records):
    data = opened(alice_records)
    text = describe_records(data.train)
    assert text.startswith(f"{data.train.num_examples} examples in 2 files, fingerprint ")
    assert text == describe_records(opened(alice_records).train)
    swapped = data.train._replace(files=data.train.files[::-1])
    assert describe_records(swapped) != text


def test_held_out_records_are_not_trained_on(alice_records):
    with pytest.raises(UserError, match="--input_file names .*eval-00000-of-00001.tfrecord, which is held out"):
        opened(alice_records, input_file=f"{alice_records}/*.tfrecord")


def test_held_out_records_of_another_length_are_refused(alice_records):
    golden = GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"
    with pytest.raises(UserError, match="--eval_input_file has records of max_seq_length=64, and --input_file of 32"):
        opened(alice_records, eval_input_file=str(golden))
