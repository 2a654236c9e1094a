import functools
import json
import os
import signal

import checks
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import named_variables
from albert_tf.distribution import distribute
from albert_tf.divergence import DivergenceGuard
from albert_tf.errors import UserError
from albert_tf.heads import AlbertWithHeads
from albert_tf.losses import pretraining_loss, pretraining_metric_names
from albert_tf.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.run_checkpoints import RunCheckpoints
from albert_tf.train_log import TrainLog
from albert_tf.train_loop import Interrupted, LoopSettings, TrainLoop
from albert_tf.train_step import Objective, Trainee

DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


@pytest.fixture(scope="module")
def two_cpus():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def batches(config, step):
    """Endless global batches of 8, each a function of its step."""

    def endless():
        index = step
        while True:
            yield checks.random_batch(config, batch=8, seed=100 + index)
            index += 1

    spec = {n: tf.TensorSpec(t.shape, t.dtype) for n, t in checks.random_batch(config, batch=8).items()}
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_generator(endless, output_signature=spec).with_options(options)


class Run:
    """A run of the loop on a tiny model."""

    def __init__(self, directory, *, strategy=None, optimizer="lamb", steps=6, rate=0.02, max_rollbacks=0, **changes):
        self.strategy = strategy or tf.distribute.get_strategy()
        directory.mkdir(exist_ok=True)
        self.directory, self.steps, self.max_rollbacks = directory, steps, max_rollbacks
        config = checks.tiny_config(**changes)
        with self.strategy.scope():
            model = AlbertWithHeads(config)
            checks.randomize(model)
            self.variables = named_variables(model)
            schedule = LearningRateSchedule(rate, num_train_steps=steps, num_warmup_steps=2)
            optimizer = AlbertOptimizer(optimizer, self.variables, schedule=schedule)
            self.trainee = Trainee.create(model, self.variables, optimizer)
            self.checkpoints = RunCheckpoints(
                directory, variables=self.variables, optimizer=optimizer, state=self.trainee.state, keep=10
            )
            self.resumed = self.checkpoints.restore_latest()
        self.objective = Objective(pretraining_loss, pretraining_metric_names(model.head_names))
        self.make_dataset = functools.partial(batches, config)
        self.model = model

    def train(self, *, loop=2, evaluate=None, make_dataset=None, loss_fn=None, **settings):
        make_dataset = make_dataset or self.make_dataset
        step = int(self.trainee.global_step.numpy())
        guard = DivergenceGuard(self.directory, max_loss_jump=1.5, max_rollbacks=self.max_rollbacks, step=step)
        guard.set_state(self.trainee.state["recent_losses"].numpy())
        defaults = {
            "num_train_steps": self.steps, "save_checkpoints_steps": 3, "save_checkpoints_secs": 1e9,
            "iterations_per_loop": loop, "gradient_accumulation_steps": 1, "random_seed": 5,
            "poll_metadata_server": False,
        }  # fmt: skip
        TrainLoop(
            trainee=self.trainee,
            objective=self.objective._replace(loss_fn=loss_fn or self.objective.loss_fn),
            make_batches=lambda step: distribute(lambda rows: make_dataset(step), self.strategy, batch_size=8),
            strategy=self.strategy,
            checkpoints=self.checkpoints,
            guard=guard,
            evaluate=evaluate,
            log=TrainLog(self.directory, start_step=step, num_train_steps=self.steps),
            settings=LoopSettings(**{**defaults, **settings}),
        ).train()
        return self

    def weights(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def lines(self, split="train"):
        entries = [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]
        return [entry for entry in entries if entry["split"] == split]


def assert_same_bits(one, other):
    for name, value in one.weights().items():
        assert np.array_equal(value, other.weights()[name]), name


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


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path):
    whole = Run(tmp_path / "whole", **DROPOUT).train()
    first = Run(tmp_path / "cut", **DROPOUT)

    def stop_after_checkpoint():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.train(evaluate=stop_after_checkpoint)
    second = Run(tmp_path / "cut", **DROPOUT)
    assert second.resumed and int(second.trainee.global_step) == 3
    second.train()
    assert_same_bits(whole, second)
    assert [line["step"] for line in second.lines()] == [line["step"] for line in whole.lines()]


def test_a_signal_saves_and_stops(tmp_path):
    run = Run(tmp_path, steps=1000)

    def dataset(step):
        inner = run.make_dataset(step)
        return inner.map(lambda b: (tf.py_function(lambda: os.kill(os.getpid(), signal.SIGTERM), [], []), b)[1])

    with pytest.raises(Interrupted) as stopped:
        run.train(make_dataset=dataset)
    assert stopped.value.reason == "signal SIGTERM"
    assert (tmp_path / f"model.ckpt-{stopped.value.step}.index").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_loss_that_is_not_finite_stops_without_saving(tmp_path):
    def broken(model, batch, *, dropout_seed):
        terms = pretraining_loss(model, batch, dropout_seed=dropout_seed)
        total, weight = terms["masked_lm_loss"]
        return {**terms, "masked_lm_loss": (total * float("nan"), weight)}

    run = Run(tmp_path)
    with pytest.raises(
        UserError, match="the loss or its gradient is not finite at step 1, before the first checkpoint"
    ):
        run.train(loss_fn=broken)
    assert not list(tmp_path.glob("*.index"))


def test_a_gradient_that_is_not_finite_stops_without_saving(tmp_path):
    def broken(model, batch, *, dropout_seed):
        terms = pretraining_loss(model, batch, dropout_seed=dropout_seed)
        total, weight = terms["masked_lm_loss"]
        return {**terms, "masked_lm_loss": (total + tf.sqrt(total * 0.0), weight)}  # its gradient is infinity times 0

    run = Run(tmp_path)
    with pytest.raises(UserError, match="the loss or its gradient is not finite"):
        run.train(loss_fn=broken)
    assert not list(tmp_path.glob("*.index"))
