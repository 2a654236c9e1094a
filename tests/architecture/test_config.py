import dataclasses
import json

import pytest
from conftest import GOLDEN, ROOT

from albert_tf.architecture.config import AlbertConfig
from albert_tf.errors import UserError

SMALL = {
    "vocab_size": 100,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def test_released_keys_load_and_are_written_back_unchanged():
    path = GOLDEN / "tf1_checkpoint" / "plain" / "albert_config.json"
    config = AlbertConfig.load(path)
    assert config.hidden_act == "gelu_tanh"
    assert config.to_dict() == json.loads(path.read_text())


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("albert_*.json")), ids=lambda p: p.stem)
def test_shipped_configurations_load(path):
    assert AlbertConfig.load(path).vocab_size > 0


def test_own_sharing_modes_round_trip(tmp_path):
    config = AlbertConfig.from_dict({**SMALL, "parameter_sharing": "attention", "hidden_act": "gelu_erf"})
    config.save(tmp_path / "albert_config.json")
    assert AlbertConfig.load(tmp_path / "albert_config.json") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 3}, "unknown key 'hiden_size'; did you mean 'hidden_size'"),
        ({"hiden_size": 3, "vocab": 2}, "unknown key 'hiden_size'; .* unknown key 'vocab'; did you mean 'vocab_size'"),
        ({"hidden_size": 15}, "multiple of `num_attention_heads`; received 15 and 2"),
        ({"hidden_act": "gelou"}, "did you mean 'gelu'"),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` must be a positive integer; received 0"),
        ({"vocab_size": "many"}, "`vocab_size` must be a positive integer; received 'many'"),
        ({"hidden_dropout_prob": 1.0}, "`hidden_dropout_prob` must be a number"),
        ({"num_hidden_groups": 3}, "may not exceed `num_hidden_layers`"),
        ({"parameter_sharing": "some"}, "must be one of all, attention, ffn, none; received 'some'"),
    ],
)
def test_bad_values_are_refused_with_the_rule_and_the_value(change, message):
    with pytest.raises(UserError, match=message):
        AlbertConfig.from_dict({**SMALL, **change})


def test_a_bert_configuration_is_recognised():
    bert = {key: value for key, value in SMALL.items() if key != "embedding_size"}
    for more in ({}, {"directionality": "bidi", "pooler_fc_size": 768}):
        with pytest.raises(UserError, match="looks like a BERT configuration"):
            AlbertConfig.from_dict({**bert, **more})
    with pytest.raises(UserError, match="received 'bert': BERT gives each layer weights of its own"):
        AlbertConfig.from_hugging_face({**bert, "model_type": "bert"})


@pytest.mark.parametrize("case", sorted(path.name for path in (GOLDEN / "hf").iterdir()))
def test_a_hugging_face_configuration_is_written_back_with_every_key(case, tmp_path):
    path = GOLDEN / "hf" / case / "config.json"
    config = AlbertConfig.load(path)
    assert (config.hidden_act, config.classifier_dropout_prob) == ("gelu_tanh", 0.1)
    assert config.to_hugging_face() == json.loads(path.read_text())
    config.save(tmp_path / "albert_config.json")
    assert AlbertConfig.load(tmp_path / "albert_config.json") == config


@pytest.mark.parametrize(
    ("theirs", "ours", "in_json"),
    [
        ("gelu", "gelu_erf", "gelu_erf"),
        ("gelu_new", "gelu_tanh", "gelu"),
        ("gelu_pytorch_tanh", "gelu_tanh", "gelu"),
        ("relu", "relu", "relu"),
    ],
)
def test_gelu_means_another_function_at_hugging_face(theirs, ours, in_json):
    config = AlbertConfig.from_hugging_face({**SMALL, "model_type": "albert", "hidden_act": theirs})
    assert config.hidden_act == ours
    assert config.to_dict()["hidden_act"] == in_json
    assert AlbertConfig.from_hugging_face(config.to_hugging_face()).hidden_act == ours


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_norm_eps": 1e-5}, "`layer_norm_eps` must be 1e-12, .* received 1e-05"),
        ({"position_embedding_type": "relative_key"}, "must be 'absolute'"),
        ({"tie_word_embeddings": False}, "must be True"),
        ({"is_decoder": True}, "must be False"),
        ({"hidden_act": "silu"}, "must be a known activation; received 'silu'"),
        ({"hidden_act": ["gelu"]}, "must be a known activation"),
    ],
)
def test_hugging_face_keys_that_change_the_computation_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        AlbertConfig.from_hugging_face({**SMALL, "model_type": "albert", **change})


def test_hugging_face_keys_that_change_nothing_are_carried_along():
    values = {
        **SMALL,
        "model_type": "albert",
        "output_attentions": True,
        "gap_size": 0,
        "task_specific_params": {"a": 1},
    }
    written = AlbertConfig.from_hugging_face(values).to_hugging_face()
    assert {key: written[key] for key in values} == values


def test_hugging_face_groups_are_the_originals_or_refused():
    config = AlbertConfig.from_dict({**SMALL, "num_hidden_layers": 12, "num_hidden_groups": 5})
    assert AlbertConfig.from_hugging_face(config.to_hugging_face()).sharing_plan == config.sharing_plan
    differs = AlbertConfig.from_dict({**SMALL, "num_hidden_layers": 22, "num_hidden_groups": 22})
    with pytest.raises(UserError, match="assigns 22 layers to 22 groups in another way"):
        differs.to_hugging_face()


def test_missing_sizes_are_an_error_and_not_an_xxlarge_model():
    with pytest.raises(UserError, match="missing key.*num_hidden_layers"):
        AlbertConfig.from_dict({key: value for key, value in SMALL.items() if key != "num_hidden_layers"})


def test_errors_name_the_file(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({**SMALL, "x": 1}))
    with pytest.raises(UserError, match="c.json: unknown key 'x'"):
        AlbertConfig.load(tmp_path / "c.json")


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AlbertConfig.from_dict(SMALL).hidden_size = 5
