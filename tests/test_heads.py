import checks
import keras
import numpy as np
import numpy_albert
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.checkpoints import assign_weights, named_variables, read_weights
from albert_tf.config import AlbertConfig
from albert_tf.heads import AlbertWithHeads
from albert_tf.losses import pretraining_loss

CASES = ["plain", "groups2_slots"]


def load_golden(case):
    directory = GOLDEN / "tf1_checkpoint" / case
    model = AlbertWithHeads(AlbertConfig.load(directory / "albert_config.json"))
    assign_weights(named_variables(model), read_weights(str(directory)), source=case)
    arrays = {name: dict(np.load(directory / f"{name}.npz")) for name in ("inputs", "outputs", "gradients")}
    batch = {name: tf.constant(value) for name, value in arrays["inputs"].items()}
    batch["example_weights"] = tf.ones([len(arrays["inputs"]["input_ids"])])
    return model, batch, arrays["outputs"], arrays["gradients"]


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_the_originals(case):
    model, batch, expected, _ = load_golden(case)
    outputs = model(batch)
    assert np.abs(outputs["embedding_output"] - expected["embedding_output"]).max() < 5e-6
    layers = [name for name in expected if name.startswith("encoder_layer_")]
    assert len(layers) == len(outputs["encoder_layers"]) == 4
    for name, output in zip(sorted(layers), outputs["encoder_layers"], strict=True):
        assert np.abs(output - expected[name]).max() < 2e-5, name
    for name in ("sequence_output", "pooled_output"):
        assert np.abs(outputs[name] - expected[name]).max() < 2e-5, name
    masked = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy().reshape(expected["masked_lm_log_probs"].shape)
    assert np.abs(masked - expected["masked_lm_log_probs"]).max() < 2e-5
    order = tf.nn.log_softmax(outputs["sentence_order_logits"])
    assert np.abs(order - expected["sentence_order_log_probs"]).max() < 2e-5


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_the_originals(case):
    model, batch, expected, gradients = load_golden(case)
    variables = named_variables(model)
    with tf.GradientTape() as tape:
        terms = pretraining_loss(model, batch, dropout_seed=None)
        losses = {name: terms[name][0] / terms[name][1] for name in ("masked_lm_loss", "sentence_order_loss")}
        total = losses["masked_lm_loss"] + losses["sentence_order_loss"]
    for name, value in [*losses.items(), ("total_loss", total)]:
        assert abs(float(value) - float(expected[name])) < 1e-5, name
    ours = dict(zip(variables, tape.gradient(total, list(variables.values())), strict=True))
    assert set(ours) == set(gradients)
    for name, gradient in ours.items():
        assert np.abs(tf.convert_to_tensor(gradient) - gradients[name]).max() < 2e-5, name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parameter_sharing": "attention"},
        {"parameter_sharing": "ffn"},
        {"parameter_sharing": "none"},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"embedding_size": 16},
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_erf"},
    ],
    ids=str,
)
def test_outputs_are_those_of_the_numpy_oracle(changes):
    config = checks.tiny_config(**changes)
    model = AlbertWithHeads(config)
    weights = checks.randomize(model)
    batch = checks.random_batch(config)
    expected = numpy_albert.forward(
        weights,
        {name: tensor.numpy() for name, tensor in batch.items()},
        num_layers=config.num_hidden_layers,
        num_groups=config.num_hidden_groups,
        inner_group_num=config.inner_group_num,
        heads=config.num_attention_heads,
        activation=config.hidden_act,
        mode=config.parameter_sharing,
    )
    outputs = model(batch)
    for depth, layer in enumerate(outputs["encoder_layers"]):
        assert np.abs(layer - expected[f"encoder_layer_{depth:02d}"]).max() < 2e-5
    assert np.abs(outputs["pooled_output"] - expected["pooled_output"]).max() < 2e-5
    masked = tf.nn.log_softmax(outputs["masked_lm_logits"])
    assert np.abs(masked - expected["masked_lm_log_probs"]).max() < 2e-5
    order = tf.nn.log_softmax(outputs["sentence_order_logits"])
    assert np.abs(order - expected["sentence_order_log_probs"]).max() < 2e-5


def test_heads_exist_only_where_asked_for():
    config = checks.tiny_config()
    assert AlbertWithHeads(config, heads=("masked_lm",)).sentence_order is None
    outputs = AlbertWithHeads(config, heads=())(checks.random_batch(config))
    assert not [name for name in outputs if name.endswith("_logits")]
    with pytest.raises(ValueError, match="received squad"):
        AlbertWithHeads(config, heads=("squad",))


def test_heads_count_their_weights():
    config = AlbertConfig.from_dict({**checks.TINY, "vocab_size": 30000, "embedding_size": 128, "hidden_size": 768,
                                     "num_attention_heads": 12, "intermediate_size": 3072,
                                     "max_position_embeddings": 512})  # fmt: skip
    assert AlbertWithHeads(config).count_params() == 11_813_810


def test_saves_and_loads_as_keras(tmp_path):
    model = AlbertWithHeads(checks.tiny_config(parameter_sharing="ffn"))
    checks.randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = checks.random_batch(model.config)
    assert np.allclose(loaded(batch)["masked_lm_logits"], model(batch)["masked_lm_logits"], atol=1e-6)
