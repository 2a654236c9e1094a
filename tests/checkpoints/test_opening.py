import dataclasses
import functools
import re
import shutil

import checkpoint_files
import checks
import golden_models
import keras
import numpy as np
import pytest
from conftest import GOLDEN, ROOT

from albert_tf.checkpoints.converter import convert
from albert_tf.checkpoints.opening import assign_weights, load_encoder, load_model, open_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import variables
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.text.tokenizer_files import load_tokenizer

CASES = (*golden_models.TF1_PRETRAINING, *golden_models.TF1_FINETUNED, *golden_models.HUGGING_FACE)


@pytest.mark.parametrize("case", CASES)
def test_every_output_and_gradient_is_that_of_the_code_that_made_the_checkpoint(case):
    golden_models.check(load_model(GOLDEN / case, label_head=golden_models.LABEL_HEADS.get(case)), case)


def test_an_opened_checkpoint_says_what_it_is():
    opened = open_checkpoint(GOLDEN / "hf" / "token_classification")
    assert (opened.format, opened.heads, opened.num_labels, opened.labels, opened.has_pooler) == (
        "hf", ("token_classification",), 9, None, False)  # fmt: skip
    assert opened.shapes["bert/embeddings/word_embeddings"] == (300, 16)
    assert opened.read("bert/encoder/embedding_hidden_mapping_in/kernel").shape == (16, 32)
    opened = open_checkpoint(GOLDEN / "tf1_checkpoint" / "groups2_slots")
    assert (opened.format, opened.heads, opened.config.num_hidden_groups) == (
        "tf1", ("masked_lm", "sentence_order"), 2)  # fmt: skip
    assert "global_step" in opened.inert and "global_step" not in opened.shapes


def test_a_run_is_opened_with_its_tokenizer(tmp_path, english_tokenizer):
    model = AlbertWithHeads(checks.tiny_config(vocab_size=30000))
    weights = checks.randomize(model)
    checks.save_run_directory(tmp_path, model, english_tokenizer)
    opened = open_checkpoint(tmp_path)
    assert opened.format == "native"
    assert {name: opened.read(name).tobytes() for name in opened.shapes} == {
        name: value.tobytes() for name, value in weights.items()
    }
    assert opened.load_tokenizer().fingerprint == english_tokenizer.fingerprint
    loaded = load_encoder(tmp_path)
    assert isinstance(loaded, AlbertEncoder)
    batch = checks.random_batch(model.config)
    assert np.array_equal(loaded(batch)["pooled_output"], model(batch)["pooled_output"])


def test_what_a_model_lacks_or_does_not_use_is_an_error_that_lists_names():
    case = GOLDEN / "tf1_checkpoint" / "plain"
    opened = open_checkpoint(case)
    other = AlbertWithHeads(opened.config, heads=("question_answering",))
    with pytest.raises(UserError, match="lacks 2 of the model's 27 variables: cls/squad/output_weights"):
        assign_weights(variables.named_variables(other), opened)
    narrow = AlbertWithHeads(checks.tiny_config())
    with pytest.raises(
        UserError, match=r"word_embeddings has shape \[1000, 16\], the configuration asks for \[90, 8\]"
    ):
        assign_weights(variables.named_variables(narrow), opened)


def test_weights_and_configuration_that_disagree_are_refused(tmp_path):
    for file in (GOLDEN / "tf1_checkpoint" / "plain").glob("model.ckpt-best.*"):
        shutil.copy(file, tmp_path)
    shutil.copy(GOLDEN / "finetune_heads" / "race" / "albert_config.json", tmp_path)
    with pytest.raises(UserError, match=r"has shape \[1000, 16\], and the configuration asks for \[300, 16\]"):
        open_checkpoint(tmp_path)


def test_weights_are_used_as_they_were_trained():
    opened = open_checkpoint(GOLDEN / "tf1_checkpoint" / "plain")
    opened.require_same_computation(dataclasses.replace(opened.config, num_hidden_layers=9, hidden_dropout_prob=0.1))
    for change in ({"num_attention_heads": 8}, {"hidden_act": "relu"}):
        with pytest.raises(UserError, match=f"has {next(iter(change))}=.*, and the configuration asks for"):
            opened.require_same_computation(dataclasses.replace(opened.config, **change))


def test_a_tokenizer_of_another_model_is_refused(tmp_path, english_tokenizer):
    checkpoint_files.copy_golden("tf1_checkpoint/plain", tmp_path)
    with pytest.raises(UserError, match="has no tokenizer beside it"):
        open_checkpoint(tmp_path).load_tokenizer()
    english_tokenizer.save(tmp_path)
    with pytest.raises(UserError, match="the tokenizer has 30000 pieces and the model only 1000"):
        open_checkpoint(tmp_path).load_tokenizer()


def test_a_tokenizer_that_is_too_small_is_told_and_of_a_run_refused(tmp_path, small_tokenizer, caplog):
    model = AlbertWithHeads(checks.tiny_config(vocab_size=310))
    checks.save_run_directory(tmp_path, model, small_tokenizer)
    with caplog.at_level("WARNING", logger="absl"):
        assert open_checkpoint(tmp_path).load_tokenizer().vocab_size == 300
    assert "the tokenizer has 300 pieces and the model 310" in caplog.text
    (tmp_path / "run_config.json").write_text("{}")
    with pytest.raises(UserError, match="has 300 pieces and the model 310; they belong to different models"):
        open_checkpoint(tmp_path).load_tokenizer()


@pytest.mark.parametrize("target_format", ["native", "tf1", "hf"])
def test_the_lines_of_the_readme_embed_fine_tune_save_and_load(target_format, tmp_path, monkeypatch, alice_vocab):
    tokenizer = load_tokenizer(alice_vocab)
    model = AlbertWithHeads(checks.tiny_config(vocab_size=tokenizer.vocab_size, max_position_embeddings=64))
    checks.randomize(model)
    (tmp_path / "run").mkdir()
    checks.save_run_directory(tmp_path / "run", model, tokenizer)
    convert(
        ConvertConfig(source=str(tmp_path / "run"), target=str(tmp_path / "albert_base"), target_format=target_format)
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(
        block for block in re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL) if "load_encoder" in block
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keras.Model, "fit", functools.partialmethod(keras.Model.fit, verbose=0))
    names = {"labels": np.array([0, 1])}
    exec(block.split("classifier = keras.models")[0], names)
    expected = model.encoder(names["features"])["pooled_output"]
    assert np.abs(names["embeddings"] - expected).max() < 1e-6
    trained = names["classifier"]
    exec("classifier = keras.models" + block.split("classifier = keras.models")[1], names)
    assert names["classifier"] is not trained
    answers = [model.predict(names["features"], verbose=0) for model in (trained, names["classifier"])]
    assert np.allclose(*answers, atol=1e-6)
