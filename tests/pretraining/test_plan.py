import contextlib
import dataclasses

import checks
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.pretraining.plan import check_same_command, make_plan, num_evaluated
from albert_tf.pretraining.record_data import open_data
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training.workers import Agreement


@pytest.fixture
def planned(alice_records, tmp_path):
    def plan(strategy=None, **changes):
        settings = {"albert_config_file": "x", "output_dir": str(tmp_path), "input_file": f"{alice_records}/train-*",
                    "eval_input_file": f"{alice_records}/eval-*", "precision": "float32"}  # fmt: skip
        config = PretrainConfig(**{**settings, **changes})
        shape = checks.tiny_config(vocab_size=600)
        data = open_data(config, shape)
        return config, data, make_plan(config, shape, data=data, strategy=strategy or tf.distribute.get_strategy())

    return plan


def test_the_record_holds_what_was_resolved(planned):
    _, data, plan = planned(train_batch_size=16, num_train_steps=100)
    assert plan.record["learning_rate"] == pytest.approx(0.00011)
    assert plan.record["num_warmup_steps"] == 10
    assert plan.record["precision"] == plan.precision == "float32"
    assert plan.record["records"].startswith(f"{data.train.num_examples} examples in 2 files")


def test_how_a_batch_is_divided_may_change_in_a_run(planned):
    assert (
        planned(train_batch_size=16)[2].record == planned(train_batch_size=16, gradient_accumulation_steps=4)[2].record
    )


@pytest.mark.parametrize(("size", "most", "expected"), [(7, 2, 14), (64, None, 84), (64, 1, 64), (64, 9, 84)])
def test_the_number_of_examples_evaluated(planned, size, most, expected):
    config, data, plan = planned(train_batch_size=16, eval_batch_size=size, max_eval_steps=most)
    assert num_evaluated(config, data) == expected
    assert f"Held out {expected} examples" in "\n".join(plan.lines)
    assert plan.held_out.startswith(f"{expected} of 84 examples in 1 files, fingerprint ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"train_batch_size": 9, "eval_batch_size": 12}, "--train_batch_size .* received 9 and 4"),
     ({"train_batch_size": 12, "eval_batch_size": 9}, "--eval_batch_size .* received 9 and 4"),
     ({"train_batch_size": 12, "eval_batch_size": 9, "eval_input_file": None}, None),
     ({"train_batch_size": 9, "eval_batch_size": 12, "input_file": None, "do_eval": True}, None)],
)  # fmt: skip
def test_batches_that_are_used_must_divide_over_the_replicas(planned, changes, message):
    four = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        planned(strategy=four, **changes)


def test_workers_with_other_flags_or_records_are_told_apart(planned, monkeypatch):
    compared = []
    monkeypatch.setattr(Agreement, "check_equal", lambda self, value, what: compared.append((value, what)))
    for changes in ({}, {}, {"random_seed": 7}, {"save_checkpoints_steps": 3}, {"max_eval_steps": 1}):
        config, _, plan = planned(train_batch_size=16, **changes)
        shape = checks.tiny_config(vocab_size=600)
        check_same_command(config, shape, plan=plan, strategy=tf.distribute.get_strategy())
    shape = checks.tiny_config(vocab_size=600)
    for name in ("record", "held_out"):
        other_plan = dataclasses.replace(plan, **{name: "of others"})
        check_same_command(config, shape, plan=other_plan, strategy=tf.distribute.get_strategy())
    other_shape = checks.tiny_config(vocab_size=600, hidden_dropout_prob=0.5)
    check_same_command(config, other_shape, plan=plan, strategy=tf.distribute.get_strategy())
    elsewhere = dataclasses.replace(config, output_dir="elsewhere")
    check_same_command(elsewhere, shape, plan=plan, strategy=tf.distribute.get_strategy())
    values, names = zip(*compared, strict=True)
    assert len(values) == 9 and values[0] == values[1] and values[4] == values[8]
    assert len(set(values)) == 7 and set(names) == {"flags, models, records or precision (here float32)"}
