import json

import checks
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import export
from albert_tf.errors import UserError
from albert_tf.heads import AlbertWithHeads
from albert_tf.tokenizer import SentencePieceTokenizer

TEXTS = ["Alice was beginning to get very tired.", "", "“Oh dear!” said the Rabbit, 2,500 times; Été. " * 9]


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory, alice_vocab):
    directory = tmp_path_factory.mktemp("run")
    tokenizer = SentencePieceTokenizer.load(alice_vocab)
    model = AlbertWithHeads(checks.tiny_config(vocab_size=tokenizer.vocab_size))
    checks.randomize(model)
    checks.save_run_directory(directory, model, tokenizer)
    return directory, model, tokenizer


@pytest.fixture(scope="module")
def exported(run_directory, tmp_path_factory):
    source = export.ExportSource.load(str(run_directory[0]))
    return export.export_saved_model(source, output_dir=tmp_path_factory.mktemp("export"), version=3)


def expected_embeddings(model, tokenizer, text):
    """Computes both embeddings of one text with the Python tokenizer and no padding."""
    ids = tokenizer.encode(text)[: model.config.max_position_embeddings - 2]
    ids = [tokenizer.cls_id, *ids, tokenizer.sep_id]
    batch = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [[0] * len(ids)]}
    outputs = model.encoder({name: tf.constant(value) for name, value in batch.items()})
    tokens = outputs["sequence_output"][0, 1:-1].numpy()
    return outputs["pooled_output"][0], tokens.mean(0) if len(tokens) else np.zeros(model.config.hidden_size)


def test_plain_text_is_answered_with_the_models_embeddings(run_directory, exported):
    _, model, tokenizer = run_directory
    answers = tf.saved_model.load(str(exported)).signatures["serving_default"](text=tf.constant(TEXTS))
    for row, text in enumerate(TEXTS):
        pooled, mean = expected_embeddings(model, tokenizer, text)
        assert np.abs(answers["pooled_embedding"][row] - pooled).max() < 1e-5
        assert np.abs(answers["mean_embedding"][row] - mean).max() < 1e-5


def test_the_directory_is_what_tf_serving_wants(exported):
    assert exported.name == "3"
    assert not list(exported.parent.glob(".*"))
    assets = {path.name for path in (exported / "assets").iterdir()}
    assert assets == {"spiece.model", "tokenizer_settings.json", "albert_config.json", "export_manifest.json"}
    assert {path.name for path in exported.iterdir()} <= {"assets", "variables", "saved_model.pb", "fingerprint.pb"}
    manifest = json.loads((exported / "assets" / "export_manifest.json").read_text())
    assert (manifest["model_version"], manifest["max_seq_length"]) == (3, 32)


def test_no_slot_no_xla_and_no_unused_variable_is_in_it(run_directory, exported):
    names = [name for name, _ in tf.train.list_variables(str(exported / "variables" / "variables"))]
    variables = [name for name in names if "VARIABLE_VALUE" in name]
    assert len(variables) == len(run_directory[1].encoder.variables) == 25
    assert b"_XlaMustCompile" not in (exported / "saved_model.pb").read_bytes()


def test_an_export_that_answers_wrongly_or_does_not_load_is_noticed(exported):
    answers = tf.saved_model.load(str(exported)).signatures["serving_default"](text=tf.constant(export._CHECK_TEXTS))
    expected = {name: value.numpy() for name, value in answers.items()}
    export.check_saved_model(exported, expected)
    with pytest.raises(RuntimeError, match="answers pooled_embedding with a difference"):
        export.check_saved_model(exported, {**expected, "pooled_embedding": expected["pooled_embedding"] + 0.01})


def test_a_module_that_holds_a_keras_layer_does_not_pass_the_check(run_directory, tmp_path):
    """The failure that the check is for: it loads with tf.saved_model.load, and not where TF Serving runs."""
    _, model, tokenizer = run_directory
    served = export.ServedEncoder(model, tokenizer, max_seq_length=32)
    expected = {name: value.numpy() for name, value in served.embed(tf.constant(export._CHECK_TEXTS)).items()}
    del served.variables_of_model
    served.encoder = model.encoder
    tf.saved_model.save(served, str(tmp_path), signatures={"serving_default": served.embed.get_concrete_function()})
    with pytest.raises(RuntimeError, match="does not load as TF Serving loads it"):
        export.check_saved_model(tmp_path, expected)


def test_a_failed_export_leaves_nothing(run_directory, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "check_saved_model", fail)
    with pytest.raises(OSError):
        export.export_saved_model(export.ExportSource.load(str(run_directory[0])), output_dir=tmp_path, version=1)
    assert not list(tmp_path.iterdir())


def test_bad_requests_are_refused(run_directory, exported, tmp_path):
    source = export.ExportSource.load(str(run_directory[0]))
    with pytest.raises(UserError, match="a served version is never changed"):
        export.export_saved_model(source, output_dir=exported.parent, version=3)
    with pytest.raises(UserError, match="may not exceed the model's 32 positions; received 33"):
        export.export_saved_model(source, output_dir=tmp_path, version=1, max_seq_length=33)
    with pytest.raises(UserError, match="there is no"):
        export.ExportSource.load(str(tmp_path))
