import checks
import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import DROPOUT, Run

from albert_tf.training.distribution import distribute
from albert_tf.training.step import compile_train_steps, make_evaluator


@pytest.fixture(scope="module")
def strategies():
    devices = [f"CPU:{index}" for index in range(4)]
    # TensorFlow's collectives, which two replicas use, take one group of devices in a process.
    to_one = tf.distribute.ReductionToOneDevice()
    return {
        1: None,
        2: tf.distribute.MirroredStrategy(devices[:2]),
        4: tf.distribute.MirroredStrategy(devices, cross_device_ops=to_one),
    }


def assert_same_numbers(one, other):
    """The same losses to 1e-5, and weights to 1e-5; the gradients of key biases are rounding noise."""
    for a, b in zip(one.lines(), other.lines(), strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-5
        assert abs(a["masked_lm_accuracy"] - b["masked_lm_accuracy"]) < 1e-6
    for name, value in one.weights().items():
        difference = np.abs(value - other.weights()[name]).max()
        assert difference < (1e-4 if name.endswith("key/bias") else 1e-5), name


def compare_with_one(tmp_path, strategies, others, *, optimizer, dropout, batch=8):
    options = {"optimizer": optimizer, "rate": 0.01, "steps": 20, "batch": batch, **dropout}
    one = Run(tmp_path / "one", **options).train(loop=20)
    for replicas, parts in others:
        run = Run(tmp_path / f"{replicas}-{parts}", strategy=strategies[replicas], **options)
        assert_same_numbers(one, run.train(loop=20, gradient_accumulation_steps=parts))


def test_two_replicas_with_micro_batches_take_the_steps_of_one(tmp_path, strategies):
    compare_with_one(tmp_path, strategies, [(2, 4)], optimizer="lamb", dropout=DROPOUT)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("dropout", [{}, DROPOUT], ids=["no dropout", "dropout"])
def test_any_replicas_and_micro_batches_take_the_steps_of_one(tmp_path, strategies, optimizer, dropout):
    others = [(1, 4), (2, 1), (2, 4), (4, 1), (4, 4)]
    compare_with_one(tmp_path, strategies, others, optimizer=optimizer, dropout=dropout, batch=16)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_clock_of_the_data_has_stopped_before_a_step_begins(tmp_path, strategies, replicas):
    run = Run(tmp_path, strategy=strategies[replicas])
    options = {"strategy": run.strategy, "random_seed": 1, "accumulation_steps": 1}
    run_steps = compile_train_steps(run.trainee, run.objective, **options)
    batches = iter(distribute(lambda rows: run.make_dataset(0), run.strategy, batch_size=8))
    traced = run_steps.get_concrete_function(batches, tf.constant(2, tf.int64))
    functions = traced.graph.as_graph_def().library.function
    (body,) = [f.node_def for f in functions if sum(node.op == "Timestamp" for node in f.node_def) == 2]
    inputs = {node.name: [name.lstrip("^").partition(":")[0] for name in node.input] for node in body}

    def all_before(name, found):
        for before in inputs.get(name, []):
            if before not in found:
                found.add(before)
                all_before(before, found)
        return found

    clocks = {node.name for node in body if node.op == "Timestamp"}
    products = [node.name for node in body if node.op == "MatMul"]
    assert len(products) > 10 * replicas
    for name in products:
        assert clocks <= all_before(name, set()), name


def test_a_seed_may_take_all_of_its_64_bits(tmp_path):
    run = Run(tmp_path / "run", steps=1, **DROPOUT)
    run.train(random_seed=2**62 + 1)
    assert [line["step"] for line in run.lines()] == [1]


def test_a_step_reports_trust_and_update_ratios(tmp_path):
    lamb = Run(tmp_path / "lamb", optimizer="lamb", rate=0.01).train().lines()[-1]
    assert 0 < lamb["trust_ratio_min"] <= lamb["trust_ratio_median"] <= lamb["trust_ratio_max"]
    # The change of a LAMB variable is the rate times its own length.
    assert lamb["update_ratio_min"] == pytest.approx(lamb["learning_rate"], rel=1e-4)
    assert lamb["update_ratio_max"] == pytest.approx(lamb["learning_rate"], rel=1e-4)
    adamw = Run(tmp_path / "adamw", optimizer="adamw", rate=0.01).train().lines()[-1]
    assert "trust_ratio_min" not in adamw
    assert 0 < adamw["update_ratio_min"] < adamw["update_ratio_median"] < adamw["update_ratio_max"]


def test_evaluation_weighs_every_example_the_same_for_any_batch(tmp_path, strategies):
    run = Run(tmp_path)
    data = checks.random_batch(run.model.config, batch=24)

    def evaluate(size, strategy=run.strategy, model=run.model):
        dataset = lambda rows: tf.data.Dataset.from_tensor_slices(data).batch(size, drop_remainder=True)  # noqa: E731
        batches = lambda: distribute(dataset, strategy, batch_size=size)  # noqa: E731
        return make_evaluator(model, run.objective, make_dataset=batches, strategy=strategy)(lambda: False)

    expected = evaluate(24)
    mirrored = Run(tmp_path / "m", strategy=strategies[2])
    for other in (evaluate(4), evaluate(8, strategies[2], mirrored.model)):
        assert {name: pytest.approx(value, rel=1e-5) for name, value in expected.items()} == other
