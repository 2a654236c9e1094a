import dataclasses

import pytest

from albert_tf.errors import UserError
from albert_tf.run_config import ExportConfig, PretrainConfig, RecordsConfig, VocabConfig

RECORDS = {"input_file": "a", "output_dir": "b", "spm_model_file": "c"}
PRETRAIN = {"albert_config_file": "a", "input_file": "b", "output_dir": "c"}


def test_defaults_are_the_originals():
    records, pretrain, vocab = (
        RecordsConfig(**RECORDS), PretrainConfig(**PRETRAIN), VocabConfig(input_file="a", output_dir="b"),
    )  # fmt: skip
    assert (records.max_seq_length, records.masked_lm_prob, records.ngram) == (512, 0.15, 3)
    assert (records.dupe_factor, records.short_seq_prob, records.random_seed) == (40, 0.1, 12345)
    assert (pretrain.optimizer, pretrain.learning_rate, pretrain.train_batch_size) == ("lamb", 0.00176, 4096)
    assert (pretrain.num_train_steps, pretrain.num_warmup_steps) == (125_000, 3125)
    assert (vocab.vocab_size, vocab.character_coverage, vocab.input_sentence_size) == (30000, 0.99995, 10_000_000)


@pytest.mark.parametrize(("length", "predictions"), [(512, 77), (128, 19), (64, 10)])
def test_predictions_default_to_what_the_probability_needs(length, predictions):
    assert RecordsConfig(**RECORDS, max_seq_length=length).predictions_per_seq == predictions
    assert RecordsConfig(**RECORDS, max_seq_length=length, max_predictions_per_seq=5).predictions_per_seq == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecordsConfig(**RECORDS, max_seq_length=4), "--max_seq_length must be from 16 to 100000; received 4"),
        (lambda: RecordsConfig(**RECORDS, eval_fraction=1.5), "--eval_fraction must be from 0.0 to 0.9; received 1.5"),
        (lambda: RecordsConfig(**RECORDS, dupe_factor=0), "--dupe_factor must be at least 1; received 0"),
        (lambda: PretrainConfig(**PRETRAIN, iterations_per_loop="fast"), "auto or a positive integer; received 'fast'"),
        (lambda: PretrainConfig(**PRETRAIN, num_train_steps=10), "may not exceed --num_train_steps"),
        (lambda: PretrainConfig(**PRETRAIN, train_batch_size=0), "--train_batch_size must be at least 1; received 0"),
        (lambda: ExportConfig(checkpoint="a", output_dir="b", version=-1), "--version must be at least 0"),
    ],
)
def test_values_out_of_bounds_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("config", [VocabConfig, RecordsConfig, PretrainConfig, ExportConfig])
def test_every_flag_has_a_help_text(config):
    for field in dataclasses.fields(config):
        assert field.metadata["help"].endswith("."), field.name
