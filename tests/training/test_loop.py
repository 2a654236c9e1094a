import json
import time

import checks
import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import DROPOUT, Run

from albert_tf.errors import UserError
from albert_tf.pretraining.objectives import pretraining_loss
from albert_tf.training.loop import Interrupted
from albert_tf.training.workers import Agreement


def assert_same_bits(one, other):
    for name, value in one.weights().items():
        assert np.array_equal(value, other.weights()[name]), name


def test_a_trace_is_written_of_the_steps_after_the_first_loop(tmp_path):
    run = Run(tmp_path, steps=6).train(profile_steps=3)
    assert [line["step"] for line in run.lines()] == [2, 3, 5, 6]
    (trace,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
    assert b"MatMul" in trace.read_bytes()


@pytest.mark.parametrize(("pause", "low", "high"), [(0.0, 0.0, 0.5), (0.2, 0.7, 1.0)])
def test_the_share_of_the_time_that_steps_wait_for_data_is_reported(tmp_path, pause, low, high):
    run = Run(tmp_path, steps=6)

    def slow(batch):
        return (tf.py_function(lambda: time.sleep(pause), [], []), batch)[1]

    run.train(loop=3, save_checkpoints_steps=6, make_dataset=lambda step: run.make_dataset(step).map(slow))
    assert low <= run.lines()[-1]["data_wait"] <= high


def test_loops_end_at_checkpoints_and_at_the_last_step(tmp_path):
    run = Run(tmp_path, steps=7).train()
    assert [line["step"] for line in run.lines()] == [2, 3, 5, 6, 7]
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["model.ckpt-3", "model.ckpt-6", "model.ckpt-7"]
    assert {"loss", "masked_lm_accuracy", "learning_rate", "gradient_norm", "tokens_per_second"} <= set(run.lines()[0])


def test_the_loop_length_changes_nothing(tmp_path):
    one, auto = Run(tmp_path / "1", **DROPOUT).train(loop=1), Run(tmp_path / "auto", **DROPOUT).train(loop=None)
    assert_same_bits(one, auto)


def test_training_reduces_the_loss(tmp_path):
    run = Run(tmp_path, steps=40, rate=0.05)
    config = run.model.config
    run.train(make_dataset=lambda step: tf.data.Dataset.from_tensors(checks.random_batch(config, batch=8)).repeat())
    assert run.lines()[-1]["loss"] < 0.6 * run.lines()[0]["loss"]


def stop_after_checkpoint(_):
    raise KeyboardInterrupt


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path):
    whole = Run(tmp_path / "whole", **DROPOUT).train()
    first = Run(tmp_path / "cut", **DROPOUT)
    with pytest.raises(KeyboardInterrupt):
        first.train(evaluate=stop_after_checkpoint)
    second = Run(tmp_path / "cut", **DROPOUT)
    assert second.resumed and int(second.trainee.global_step) == 3
    second.train()
    assert_same_bits(whole, second)
    assert [line["step"] for line in second.lines()] == [line["step"] for line in whole.lines()]


def test_a_request_saves_and_stops(tmp_path):
    run, requests = Run(tmp_path, steps=1000), []

    def dataset(step):
        inner = run.make_dataset(step)
        return inner.map(lambda b: (tf.py_function(lambda: requests.append("signal SIGTERM"), [], []), b)[1])

    with pytest.raises(Interrupted) as stopped:
        run.train(requests, make_dataset=dataset)
    assert stopped.value.reason == "signal SIGTERM"
    assert (tmp_path / f"model.ckpt-{stopped.value.step}.index").exists()


def test_a_request_before_the_first_step_and_one_in_an_evaluation_are_answered_there(tmp_path):
    run, requests = Run(tmp_path), ["a notice"]
    with pytest.raises(Interrupted) as stopped:
        run.train(requests)
    assert stopped.value.step == 0 and not list(tmp_path.glob("*.index"))
    requests.clear()
    asked = []

    def evaluate(is_stopped):
        asked.append(is_stopped())
        requests.append("a notice")
        return None if is_stopped() else {"loss": 1.0}

    with pytest.raises(Interrupted) as stopped:
        run.train(requests, evaluate=evaluate)
    assert (asked, stopped.value.step) == ([False], 3)
    assert (tmp_path / "model.ckpt-3.index").exists() and not run.lines("eval")


def test_a_loss_that_is_not_finite_stops_without_saving(tmp_path):
    def broken(model, batch, *, draw):
        terms = pretraining_loss(model, batch, draw=draw)
        total, weight = terms["masked_lm_loss"]
        return {**terms, "masked_lm_loss": (total * float("nan"), weight)}

    run = Run(tmp_path)
    with pytest.raises(
        UserError, match="the loss or its gradient is not finite at step 1, before the first checkpoint"
    ):
        run.train(loss_fn=broken)
    assert not list(tmp_path.glob("*.index"))


def test_a_gradient_that_is_not_finite_stops_without_saving(tmp_path):
    def broken(model, batch, *, draw):
        terms = pretraining_loss(model, batch, draw=draw)
        total, weight = terms["masked_lm_loss"]
        return {**terms, "masked_lm_loss": (total + tf.sqrt(total * 0.0), weight)}  # its gradient is infinity times 0

    run = Run(tmp_path)
    with pytest.raises(UserError, match="the loss or its gradient is not finite"):
        run.train(loss_fn=broken)
    assert not list(tmp_path.glob("*.index"))


def poisoned(run, steps):
    """Batches of which those of these steps have weights that are not numbers, and so no finite loss."""

    def make_dataset(step):
        dataset = run.make_dataset(step).enumerate(step)
        bad = lambda index: tf.reduce_any(index == tf.constant(steps, tf.int64))  # noqa: E731
        return dataset.map(lambda index, batch: {
            **batch,
            "example_weights": tf.where(bad(index), float("nan"), batch["example_weights"]),
        })  # fmt: skip

    return make_dataset


def test_divergence_goes_back_to_the_checkpoint_and_skips_the_data(tmp_path, caplog):
    run = Run(tmp_path / "a", steps=9, max_rollbacks=1)
    run.train(make_dataset=poisoned(run, [4]))
    assert "not finite at step 5: going on from the checkpoint of step 3 with the data after step 5" in caplog.text
    (entry,) = json.loads((tmp_path / "a" / "rollbacks.json").read_text())
    assert (entry["diverged_step"], entry["restored_step"]) == (5, 3)
    steps = [line["step"] for line in run.lines()]
    assert steps == sorted(set(steps)) and steps[-1] == 9
    # A run that never had the batches of steps 4 and 5 ends with the same weights.
    other = Run(tmp_path / "b", steps=9)
    other.train(make_dataset=lambda step: other.make_dataset(0).take(3).concatenate(other.make_dataset(5)).skip(step))
    assert_same_bits(run, other)
    # So does one that is killed after the rollback.
    for name in ("model.ckpt-6", "model.ckpt-9"):
        for file in (tmp_path / "a").glob(f"{name}.*"):
            file.unlink()
    again = Run(tmp_path / "a", steps=9, max_rollbacks=1)
    assert int(again.trainee.global_step) == 3
    again.train(make_dataset=poisoned(again, [4]))
    assert_same_bits(run, again)


def test_a_checkpoint_that_diverges_at_once_again_is_set_aside_for_the_one_before(tmp_path, caplog):
    run = Run(tmp_path / "a", steps=9, max_rollbacks=2)
    run.train(make_dataset=poisoned(run, [7, 9]))  # steps 8, and again 8 after the checkpoint of step 6
    assert "model.ckpt-6 is set aside as diverged-*" in caplog.text
    assert "at step 8: going on from the checkpoint of step 3 with the data after step 8" in caplog.text
    assert list((tmp_path / "a").glob("diverged-model.ckpt-6.index"))
    assert [line["step"] for line in run.lines()] == [2, 3, 5, 6, 8, 9]
    other = Run(tmp_path / "b", steps=9)  # without the batches 3 to 9
    other.train(make_dataset=lambda step: other.make_dataset(0).take(3).concatenate(other.make_dataset(10)).skip(step))
    assert_same_bits(run, other)


def test_workers_compare_what_they_went_back_to_and_the_chief_knows_a_missing_evaluation(tmp_path, monkeypatch):
    compared = []
    monkeypatch.setattr(Agreement, "check_equal", lambda self, value, what: compared.append((value, what)))
    run = Run(tmp_path, steps=6, max_rollbacks=1)
    loop = run.loop(make_dataset=poisoned(run, [4]))
    loop.train()
    assert compared == [(3, "checkpoints (here of step 3)")] * 2  # the newest, and the one gone back to
    assert loop.evaluation_is_missing()
    loop.log.write("eval", 6, {"loss": 1.0})
    assert not loop.evaluation_is_missing()
    monkeypatch.setattr(Agreement, "chiefs", lambda self, value: 1)  # this worker sees it, the chief does not
    assert loop.evaluation_is_missing()
    monkeypatch.setattr(Agreement, "chiefs", lambda self, value: 0)
    (tmp_path / "metrics.jsonl").unlink()
    assert not loop.evaluation_is_missing()


def test_after_its_last_rollback_a_run_stops_with_what_to_try(tmp_path):
    run = Run(tmp_path, steps=9, max_rollbacks=1)
    with pytest.raises(
        UserError, match="not finite at step 5, after as many rollbacks as --max_rollbacks=1 allows; .* of step 3"
    ):
        run.train(make_dataset=poisoned(run, [4, 6]))
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["model.ckpt-3"]


def test_checkpoints_are_also_saved_by_time(tmp_path):
    run = Run(tmp_path, steps=7).train(loop=1, save_checkpoints_steps=100, save_checkpoints_secs=0.0)
    assert len(list(tmp_path.glob("*.index"))) == 7
    assert not run.lines("eval")


def test_the_inner_loop_is_traced_once(tmp_path):
    run = Run(tmp_path, steps=7)
    traced = []

    def counting(model, batch, *, draw):
        traced.append(1)
        return pretraining_loss(model, batch, draw=draw)

    run.train(loss_fn=counting, loop=2)
    assert len(traced) == 1
