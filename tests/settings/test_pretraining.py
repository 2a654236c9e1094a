import dataclasses

import pytest

from albert_tf.errors import UserError
from albert_tf.settings.data_preparation import RecordsConfig, VocabConfig
from albert_tf.settings.pretraining import PretrainConfig

RECORDS = {"input_file": "a", "output_dir": "b", "spm_model_file": "c"}
PRETRAIN = {"albert_config_file": "a", "input_file": "b", "output_dir": "c"}


def test_defaults_are_the_originals():
    records, pretrain, vocab = (
        RecordsConfig(**RECORDS), PretrainConfig(**PRETRAIN), VocabConfig(input_file="a", output_dir="b"),
    )  # fmt: skip
    assert (records.max_seq_length, records.masked_lm_prob, records.ngram) == (512, 0.15, 3)
    assert (records.dupe_factor, records.short_seq_prob, records.random_seed) == (40, 0.1, 12345)
    assert (pretrain.optimizer, pretrain.peak_learning_rate, pretrain.train_batch_size) == ("lamb", 0.00176, 4096)
    assert (pretrain.num_train_steps, pretrain.warmup_steps) == (125_000, 3125)
    assert (vocab.vocab_size, vocab.character_coverage, vocab.input_sentence_size) == (30000, 0.99995, 10_000_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecordsConfig(**RECORDS, max_seq_length=4), "--max_seq_length must be from 16 to 100000; received 4"),
        (lambda: RecordsConfig(**RECORDS, eval_fraction=1.5), "--eval_fraction must be from 0.0 to 0.9; received 1.5"),
        (lambda: RecordsConfig(**RECORDS, dupe_factor=0), "--dupe_factor must be at least 1; received 0"),
        (lambda: RecordsConfig(**RECORDS, masked_lm_prob=0.0), "--masked_lm_prob must be from 0.001 to 0.9"),
        (lambda: VocabConfig(input_file="a", output_dir="b", vocab_size=2**31), "from 32 to 1000000; received 21474"),
        (lambda: VocabConfig(input_file="a", tfds_name="c", output_dir="b"), "must be given, and not both"),
        (lambda: PretrainConfig(**PRETRAIN, iterations_per_loop="fast"), "auto or a positive integer; received 'fast'"),
        (lambda: PretrainConfig(**PRETRAIN, num_train_steps=9, num_warmup_steps=10), "may not exceed --num_train_ste"),
        (lambda: PretrainConfig(**PRETRAIN, max_loss_jump=1.0), "--max_loss_jump must be at least 1.1; received 1.0"),
        (lambda: PretrainConfig(**PRETRAIN, do_eval=True), "--do_eval needs --eval_input_file"),
        (lambda: PretrainConfig(**{**PRETRAIN, "input_file": None}), "--input_file must be given to train"),
        (lambda: PretrainConfig(**PRETRAIN, do_lower_case=True), "--do_lower_case needs --spm_model_file; a manifest"),
        (lambda: PretrainConfig(**PRETRAIN, tpu_zone="a"), "--tpu_zone and --gcp_project need --tpu=NAME"),
        (lambda: PretrainConfig(**PRETRAIN, init_checkpoint="a", init_output_bias="unigram"), "exclude each other"),
        (lambda: PretrainConfig(**PRETRAIN, train_batch_size=0), "--train_batch_size must be at least 1; received 0"),
    ],
)
def test_values_out_of_bounds_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("config", [VocabConfig, RecordsConfig, PretrainConfig])
def test_every_flag_has_a_help_text(config):
    for field in dataclasses.fields(config):
        assert field.metadata["help"].endswith("."), field.name


def test_the_rate_follows_the_root_of_the_batch_and_warm_up_the_length_of_the_run():
    config = PretrainConfig(**PRETRAIN, train_batch_size=512, num_train_steps=1000)
    assert config.peak_learning_rate == pytest.approx(6.2e-4, rel=0.01)  # as the original's README has it
    assert config.warmup_steps == 100
    given = PretrainConfig(**PRETRAIN, train_batch_size=512, learning_rate=0.0, num_warmup_steps=0)
    assert (given.peak_learning_rate, given.warmup_steps) == (0.0, 0)


@pytest.mark.parametrize(
    ("changes", "trains", "evaluates"),
    [
        ({}, True, False),
        ({"eval_input_file": "e"}, True, True),
        ({"eval_input_file": "e", "do_eval": False}, True, False),
        ({"eval_input_file": "e", "do_eval": True}, False, True),
        ({"eval_input_file": "e", "do_eval": True, "do_train": True}, True, True),
        ({"eval_input_file": "e", "do_train": False}, False, True),
    ],
    ids=str,
)
def test_what_is_done_follows_from_the_flags(changes, trains, evaluates):
    config = PretrainConfig(**PRETRAIN, **changes)
    assert (config.trains, config.evaluates) == (trains, evaluates)
