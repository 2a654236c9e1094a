import checks
import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import HEADS
from albert_tf.model.dropout import Draw
from albert_tf.model.heads import AlbertWithHeads


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
    expected = checks.oracle_outputs(config, weights, batch)
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
    with pytest.raises(ValueError, match="need a pooler"):
        AlbertWithHeads(config, heads=("sentence_order",), pooler=False)
    with pytest.raises(ValueError, match="needs num_labels"):
        AlbertWithHeads(config, heads=("token_classification",))


def test_heads_count_their_weights():
    config = AlbertConfig.from_dict({**checks.TINY, "vocab_size": 30000, "embedding_size": 128, "hidden_size": 768,
                                     "num_attention_heads": 12, "intermediate_size": 3072,
                                     "max_position_embeddings": 512})  # fmt: skip
    assert AlbertWithHeads(config).count_params() == 11_813_810


@pytest.mark.parametrize("part", [None, "encoder", "masked_lm", "sentence_order", "question_answering_v2"])
def test_configs_stay_usable(part):
    model = AlbertWithHeads(checks.tiny_config(), heads=("masked_lm", "sentence_order", "question_answering_v2"))
    layer = getattr(model, part) if part else model
    config = layer.get_config()
    type(layer).from_config(config)
    assert type(layer).from_config(config).get_config() == layer.get_config() == config


@pytest.mark.parametrize("length", [4, 5, 12])
def test_squad_v2_takes_texts_shorter_than_its_candidates(length):
    config = checks.tiny_config()
    model = AlbertWithHeads(config, heads=("question_answering_v2",))
    checks.randomize(model)
    batch = {name: checks.random_batch(config)[name] for name in ("input_ids", "input_mask", "segment_ids")}
    batch["p_mask"] = tf.zeros([4, 12])
    short = model({name: value[:, :length] for name, value in batch.items()})
    assert short["start_top_index"].shape == (4, 5) and short["end_top_index"].shape == (4, 25)
    assert int(tf.reduce_max(short["end_top_index"])) < length
    real = min(5, length)
    expected = tf.sort(tf.nn.log_softmax(short["start_logits"]), direction="DESCENDING")[:, :real]
    assert np.array_equal(short["start_top_log_probs"][:, :real], expected)
    assert (short["start_top_log_probs"].numpy()[:, real:] < -1e29).all()


def test_saves_and_loads_as_keras(tmp_path):
    model = AlbertWithHeads(checks.tiny_config(parameter_sharing="ffn"))
    checks.randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = checks.random_batch(model.config)
    assert np.allclose(loaded(batch)["masked_lm_logits"], model(batch)["masked_lm_logits"], atol=1e-6)


@pytest.mark.parametrize("head", sorted(set(HEADS) - {"masked_lm", "sentence_order"}))
def test_heads_of_tasks_save_and_load_as_keras_and_drop_out(head, tmp_path):
    config = checks.tiny_config(classifier_dropout_prob=0.5)
    model = AlbertWithHeads(config, heads=(head,), num_labels=3, pooler=head not in ("token_classification",))
    checks.randomize(model)
    batch = {name: value for name, value in checks.random_batch(config).items() if "lm" not in name}
    batch["p_mask"] = 1 - batch["input_mask"]
    if head == "multiple_choice":
        batch = {name: tf.stack([value, value[::-1]], axis=1) for name, value in batch.items()}
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    names = [name for name in model(batch) if "logit" in name]
    assert names
    for name in names:
        assert np.allclose(loaded(batch)[name], model(batch)[name], atol=1e-6), name
    one, same, other = (model(batch, training=True, draw=Draw(1, step, 0))[names[-1]] for step in (0, 0, 1))
    assert np.array_equal(one, same)
    # The original has no dropout before the outputs of SQuAD v1.
    assert np.array_equal(one, other) == (head == "question_answering")


@pytest.mark.parametrize("head", HEADS)
def test_parts_of_a_batch_draw_their_dropout_from_that_of_the_whole(head):
    """Replicas and micro-batches see parts; with several rows per example their rows have places in the whole too."""
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2, "classifier_dropout_prob": 0.3}
    model = AlbertWithHeads(checks.tiny_config(**dropout), heads=(head,), num_labels=3)
    checks.randomize(model)
    batch = checks.random_batch(model.config, batch=8)
    batch["p_mask"] = 1 - batch["input_mask"]
    if head == "multiple_choice":
        rows = ("input_ids", "input_mask", "segment_ids")
        batch = {name: tf.stack([batch[name], batch[name][::-1], batch[name]], axis=1) for name in rows}
    draw = Draw(3, 7, 0)
    whole = model(batch, draw=draw, training=True)
    names = [name for name in whole if name.endswith("logits")]
    for parts in (2, 4):
        size = 8 // parts
        for start in range(0, 8, size):
            part = {name: tensor[start : start + size] for name, tensor in batch.items()}
            outputs = model(part, draw=draw.after(tf.constant(start)), training=True)
            for name in names:
                assert np.abs(outputs[name] - whole[name][start : start + size]).max() < 1e-5, (name, parts, start)


def test_each_head_has_a_dropout_of_its_own():
    config = checks.tiny_config(classifier_dropout_prob=0.5)
    model = AlbertWithHeads(config, heads=("sequence_classification", "multiple_choice"), num_labels=3)
    ones, draw = tf.ones([4, config.hidden_size]), Draw(3, 7, 0)
    kept = [
        head.dropout(ones, site=head._dropout_site(), draw=draw, training=True).numpy()
        for head in (model.sequence_classification, model.multiple_choice)
    ]
    assert not np.array_equal(*kept)
