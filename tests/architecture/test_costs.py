import checks
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT

from albert_tf.architecture import costs
from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.costs import step_flops
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.model.heads import AlbertWithHeads


@pytest.mark.parametrize(
    "changes",
    [{}, {"embedding_size": 16}, {"parameter_sharing": "ffn"}, {"num_hidden_groups": 2, "inner_group_num": 2}],
    ids=str,
)
def test_weights_are_counted_without_building_the_model(changes):
    config = checks.tiny_config(**changes)
    assert costs.count_weights(config) == AlbertEncoder(config).count_params()


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 16}, {"inner_group_num": 2}], ids=str)
def test_products_are_those_of_the_graph(changes):
    """Against TensorFlow's count of the operations in the forward graph."""
    config = checks.tiny_config(**changes)
    model = AlbertWithHeads(config)
    batch = checks.random_batch(config, batch=4, length=12, predictions=3)
    graph = tf.function(lambda: model(batch)).get_concrete_function().graph
    counted = 0
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2", "Einsum"):
            counted += products_of(operation)
    ours = step_flops(config, batch_size=4, max_seq_length=12, max_predictions_per_seq=3) / 3
    # The two logits of the sentence-order head are left out.
    assert ours == pytest.approx(counted - 2 * 4 * config.hidden_size * 2, rel=1e-3)


def products_of(operation):
    left, right = (tuple(tensor.shape) for tensor in operation.inputs)
    (result,) = (tuple(tensor.shape) for tensor in operation.outputs)
    if operation.type == "Einsum":
        equation = operation.get_attr("equation").decode()
        inputs, _ = equation.split("->")
        sizes = {}
        for letters, shape in zip(inputs.split(","), (left, right), strict=True):
            sizes |= dict(zip(letters, shape, strict=True))
        return 2 * int(np.prod(list(sizes.values())))
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return 2 * int(np.prod(result)) * (left[-2] if transposed else left[-1])


def test_base_takes_what_is_known_of_it():
    config = AlbertConfig.load(ROOT / "configs" / "albert_base.json")
    forward = step_flops(config, batch_size=1, max_seq_length=128, max_predictions_per_seq=20) / 3
    assert forward == pytest.approx(2 * 128 * 12 * 7.08e6, rel=0.05)  # mostly 12 times the shared block
