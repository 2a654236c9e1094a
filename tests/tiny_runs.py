"""Tiny training runs on random batches, for the tests of the loop."""

import functools
import json

import checks
import tensorflow as tf

from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
from albert_tf.training.distribution import distribute
from albert_tf.training.divergence import DivergenceGuard
from albert_tf.training.kept_checkpoints import RunCheckpoints
from albert_tf.training.log import TrainLog
from albert_tf.training.loop import LoopSettings, TrainLoop
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.training.step import Objective, Trainee

DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


def batches(config, step, *, size=8):
    """Endless global batches of `size`, each a function of its step."""

    def endless():
        index = step
        while True:
            yield checks.random_batch(config, batch=size, seed=100 + index)
            index += 1

    spec = {n: tf.TensorSpec(t.shape, t.dtype) for n, t in checks.random_batch(config, batch=size).items()}
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_generator(endless, output_signature=spec).with_options(options)


class Run:
    """A run of the loop on a tiny model."""

    def __init__(
        self, directory, *, strategy=None, optimizer="lamb", steps=6, rate=0.02, max_rollbacks=0, batch=8, **changes
    ):
        self.strategy, self.batch = strategy or tf.distribute.get_strategy(), batch
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
        self.make_dataset = functools.partial(batches, config, size=batch)
        self.model = model

    def train(self, requests=(), **settings):
        self.loop(**settings).train(requests)
        return self

    def loop(self, *, loop=2, evaluate=None, make_dataset=None, loss_fn=None, **settings):
        make_dataset = make_dataset or self.make_dataset
        step = int(self.trainee.global_step.numpy())
        guard = DivergenceGuard(self.directory, max_loss_jump=1.5, max_rollbacks=self.max_rollbacks, step=step)
        guard.set_state(self.trainee.state["recent_losses"].numpy())
        defaults = {
            "num_train_steps": self.steps, "save_checkpoints_steps": 3, "save_checkpoints_secs": 1e9,
            "iterations_per_loop": loop, "gradient_accumulation_steps": 1, "random_seed": 5,
            "profile_steps": 0,
        }  # fmt: skip
        return TrainLoop(
            trainee=self.trainee,
            objective=self.objective._replace(loss_fn=loss_fn or self.objective.loss_fn),
            make_batches=lambda step: distribute(lambda rows: make_dataset(step), self.strategy, batch_size=self.batch),
            strategy=self.strategy,
            checkpoints=self.checkpoints,
            guard=guard,
            evaluate=evaluate,
            held_out=None,
            log=TrainLog(self.directory, start_step=step, num_train_steps=self.steps),
            settings=LoopSettings(**{**defaults, **settings}),
            ideal_step_seconds=1e-6,
        )

    def weights(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def lines(self, split="train"):
        entries = [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]
        return [entry for entry in entries if entry["split"] == split]
