import checks
import pytest
import tensorflow as tf

from albert_tf.run_config import PretrainConfig
from albert_tf.run_data import open_data
from albert_tf.run_plan import make_plan, num_evaluated


@pytest.fixture
def planned(alice_records, tmp_path):
    def plan(**changes):
        settings = {"albert_config_file": "x", "output_dir": str(tmp_path), "input_file": f"{alice_records}/train-*",
                    "eval_input_file": f"{alice_records}/eval-*", "precision": "float32"}  # fmt: skip
        config = PretrainConfig(**{**settings, **changes})
        shape = checks.tiny_config(vocab_size=600)
        data = open_data(config, shape)
        return config, data, make_plan(config, shape, data=data, strategy=tf.distribute.get_strategy())

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
