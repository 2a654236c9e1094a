import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.checkpoints.opening import load_model
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
from albert_tf.training.optimizers import STATISTICS, AlbertOptimizer, LearningRateSchedule
from albert_tf.training.step import Objective, Trainee, losses_of, train_step

LAMB = GOLDEN / "lamb"


def schedule_of(settings):
    return LearningRateSchedule(
        settings["init_lr"], num_train_steps=settings["num_train_steps"], num_warmup_steps=settings["num_warmup_steps"],
        power=settings["poly_power"], start_warmup_step=settings["start_warmup_step"],
    )  # fmt: skip


def test_learning_rates_are_the_originals():
    for case in json.loads((LAMB / "lr_schedules.json").read_text()):
        rates = [float(schedule_of(case)(tf.constant(step, tf.int64))) for step in case["steps"]]
        assert np.abs(np.array(rates) - case["learning_rate"]).max() <= 1e-6 * case["init_lr"]


def test_the_rate_is_never_negative():
    schedule = LearningRateSchedule(1.0, num_train_steps=100, num_warmup_steps=10, start_warmup_step=20)
    rates = [float(schedule(tf.constant(step))) for step in range(120)]
    assert min(rates) == 0 and rates[5] == 0 and rates[25] == 0.5


@pytest.mark.parametrize("kind", ["lamb", "adamw"])
def test_twenty_updates_are_the_originals(kind):
    arrays, settings = np.load(LAMB / f"{kind}_20steps.npz"), json.loads((LAMB / f"{kind}_20steps.json").read_text())
    names = [name.removeprefix("grads/") for name in arrays.files if name.startswith("grads/")]
    variables = {name: tf.Variable(arrays[f"values/{name}"][0]) for name in names}
    optimizer = AlbertOptimizer(kind, variables, schedule=schedule_of(settings))
    for step in range(20):
        gradients = {name: tf.constant(arrays[f"grads/{name}"][step]) for name in names}
        applied = optimizer.apply(gradients, step=tf.constant(step, tf.int64))
        assert abs(float(applied["learning_rate"]) - arrays["learning_rate"][step]) <= 1e-6 * settings["init_lr"]
        assert np.allclose(applied["gradient_norm"], arrays["grad_global_norm"][step], rtol=1e-5)
        for name, variable in variables.items():
            assert np.allclose(variable, arrays[f"values/{name}"][step + 1], atol=3e-6, rtol=1e-5), (name, step)
    for name in names:
        assert np.allclose(optimizer.slots[f"{name}/adam_m"], arrays[f"m_final/{name}"], atol=3e-6, rtol=1e-5)
        assert np.allclose(optimizer.slots[f"{name}/adam_v"], arrays[f"v_final/{name}"], atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("parts", [1, 2], ids=["at once", "accumulated"])
@pytest.mark.parametrize("kind", ["lamb", "adamw"])
def test_whole_training_steps_are_the_originals(kind, parts):
    """Model, loss, clipping and optimizer through `train_step`, from the original's checkpoint."""
    arrays = np.load(LAMB / f"pretrain_{kind}_plain.npz")
    settings = {"start_warmup_step": 0, **json.loads((LAMB / f"pretrain_{kind}_plain.json").read_text())}
    directory = GOLDEN / "tf1_checkpoint" / "plain"
    model = load_model(directory)
    variables = named_variables(model)
    trainee = Trainee.create(model, variables, AlbertOptimizer(kind, variables, schedule=schedule_of(settings)))
    objective = Objective(pretraining_loss, pretraining_metric_names(model.head_names))
    for step in range(8):
        batch = {n.removeprefix("batch/"): tf.constant(arrays[n][step]) for n in arrays.files if n.startswith("batch/")}
        batch["example_weights"] = tf.ones([batch["input_ids"].shape[0]])
        row = train_step(batch, trainee=trainee, objective=objective, random_seed=1, accumulation_steps=parts).numpy()
        statistics = dict(zip(STATISTICS, row[2 * len(objective.metric_names) :], strict=True))
        assert abs(losses_of(row[None], objective)[0] - arrays["loss"][step]) < 2e-5, step
        assert np.allclose(statistics["gradient_norm"], arrays["grad_global_norm"][step], rtol=1e-4)
        assert abs(statistics["learning_rate"] - arrays["learning_rate"][step]) <= 1e-6 * settings["init_lr"]
    for name, variable in variables.items():
        tolerance = 1e-4 if name.endswith("key/bias") else 1e-5
        assert np.abs(variable - arrays[f"final/{name}"]).max() < tolerance, name


def test_only_layer_norms_and_biases_are_not_decayed():
    names = ["a/kernel", "a/bias", "LayerNorm/gamma", "LayerNorm_1/beta", "cls/output_bias", "cls/output_weights"]
    variables = {name: tf.Variable([1.0]) for name in names}
    optimizer = AlbertOptimizer(
        "adamw", variables, schedule=LearningRateSchedule(0.5, num_train_steps=10**9, num_warmup_steps=0)
    )
    optimizer.apply({name: tf.zeros([1]) for name in names}, step=tf.constant(0))
    changed = {name for name, variable in variables.items() if variable.numpy()[0] != 1.0}
    assert changed == {"a/kernel", "cls/output_weights"}


def test_rows_of_a_sparse_gradient_are_added_before_the_norm():
    variable = tf.Variable(tf.zeros([3, 1]))
    optimizer = AlbertOptimizer(
        "adamw", {"w": variable}, schedule=LearningRateSchedule(1.0, num_train_steps=9, num_warmup_steps=0)
    )
    sparse = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([1, 1]), tf.constant([3, 1]))
    assert float(optimizer.apply({"w": sparse}, step=tf.constant(0))["gradient_norm"]) == 7.0


def test_a_variable_without_a_gradient_stays_as_it_is():
    variables = {"used": tf.Variable([1.0, 2.0]), "unused": tf.Variable([1.0, 2.0])}
    optimizer = AlbertOptimizer(
        "lamb", variables, schedule=LearningRateSchedule(0.1, num_train_steps=10**9, num_warmup_steps=0)
    )
    optimizer.apply({"used": tf.constant([1.0, 1.0]), "unused": None}, step=tf.constant(0))
    assert variables["unused"].numpy().tolist() == [1.0, 2.0]
    assert variables["used"].numpy().tolist() != [1.0, 2.0]


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="received 'sgd'"):
        AlbertOptimizer("sgd", {}, schedule=LearningRateSchedule(1.0, num_train_steps=1, num_warmup_steps=0))
