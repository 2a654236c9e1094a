import checks
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.inference import fast_graph
from albert_tf.inference.fast_graph import CLS, MEAN, POOLED, answer_function
from albert_tf.model.heads import AlbertWithHeads

PLANS = [
    {},
    {"num_hidden_layers": 1},
    {"num_hidden_groups": 2, "num_hidden_layers": 4},
    {"inner_group_num": 2},
    {"parameter_sharing": "none", "embedding_size": 16, "hidden_act": "gelu_erf"},
    {"parameter_sharing": "attention", "hidden_act": "relu"},
]


def inputs_of(config):
    batch = checks.random_batch(config, batch=5, length=14)
    lengths = batch["input_mask"].numpy().sum(1).astype(np.int32)
    return batch, (batch["input_ids"], batch["segment_ids"], tf.constant(lengths))


@pytest.mark.parametrize("largest_constant", [0, fast_graph._LARGEST_CONSTANT])
@pytest.mark.parametrize("changes", PLANS, ids=str)
def test_embeddings_are_those_of_the_oracle(changes, largest_constant, monkeypatch):
    monkeypatch.setattr(fast_graph, "_LARGEST_CONSTANT", largest_constant)
    config = checks.tiny_config(**changes)
    weights = checks.randomize(AlbertWithHeads(config, heads=()))
    batch, inputs = inputs_of(config)
    expected = checks.oracle_outputs(config, weights, batch)
    for output, value in (
        (POOLED, expected["pooled_output"]),
        (CLS, expected["sequence_output"][:, 0]),
        (MEAN, mean_of_text(expected["sequence_output"], batch)),
    ):
        answer = answer_function(weights, config, output=output, dtype=tf.float32)(*inputs).numpy()
        assert np.abs(answer - value).max() < 1e-5, output


def mean_of_text(sequence, batch):
    """Averages the tokens of each row without the first, the last, and the last of segment 0, one row at a time."""
    rows = []
    for row, mask, segments in zip(sequence, batch["input_mask"].numpy(), batch["segment_ids"].numpy(), strict=True):
        length, first_end = mask.sum(), mask.sum() - segments.sum() - 1
        rows.append(row[[i for i in range(1, length - 1) if i != first_end]].mean(0))
    return np.array(rows)


def test_small_variances_are_normalised_with_the_models_epsilon():
    """TensorFlow's fused LayerNorm has the epsilon 0.001, which would change these activations beyond recognition."""
    config = checks.tiny_config(num_hidden_layers=1)
    model = AlbertWithHeads(config, heads=())
    weights = checks.randomize(model)
    for name in weights:
        if "embeddings" in name and "LayerNorm" not in name:
            weights[name] *= 0.01
    for name, variable in model_variables(model).items():
        variable.assign(weights[name])
    batch, inputs = inputs_of(config)
    expected = model.encoder({name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")})
    answer = answer_function(weights, config, output=POOLED, dtype=tf.float32)(*inputs)
    assert np.abs(answer - expected["pooled_output"]).max() < 1e-5


def model_variables(model):
    from albert_tf.model.variables import named_variables

    return named_variables(model)


@pytest.mark.parametrize("head", ["sentence_order", "sequence_classification", "token_classification"])
def test_logits_are_those_of_the_keras_model(head):
    config = checks.tiny_config()
    model = AlbertWithHeads(config, heads=(head,), num_labels=3, pooler=head != "token_classification")
    weights = checks.randomize(model)
    batch, inputs = inputs_of(config)
    expected = model({name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")})[f"{head}_logits"]
    answer = answer_function(weights, config, output=head, dtype=tf.float32)(*inputs)
    difference = np.abs(answer - expected)
    if head == "token_classification":
        difference *= batch["input_mask"].numpy()[:, :, None]
    assert difference.max() < 1e-5


def test_bfloat16_points_where_float32_points():
    config = checks.tiny_config(hidden_size=64, intermediate_size=128, embedding_size=32)
    weights = checks.randomize(AlbertWithHeads(config, heads=()))
    inputs = inputs_of(config)[1]
    exact, coarse = (
        answer_function(weights, config, output=POOLED, dtype=dtype)(*inputs).numpy()
        for dtype in (tf.float32, tf.bfloat16)
    )
    cosines = (exact * coarse).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(coarse, axis=1)
    assert cosines.min() > 0.999
    assert not np.array_equal(exact, coarse)
