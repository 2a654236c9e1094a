import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.checkpoints.opening import load_encoder, open_checkpoint
from albert_tf.errors import UserError
from albert_tf.export import saved_model_writer
from albert_tf.export.saved_model_writer import check_export
from albert_tf.saved_model.session_loader import SessionModel


def test_the_directory_is_what_tf_serving_wants(exported):
    assert exported.name == "3"
    assert [path.name for path in exported.parent.iterdir()] == ["3"]
    files = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    assert files == {
        "saved_model.pb", "fingerprint.pb", "variables/variables.index", "variables/variables.data-00000-of-00001",
        "assets/spiece.model", "assets/tokenizer_settings.json", "assets/albert_config.json",
        "assets/export_manifest.json", "assets.extra/tf_serving_warmup_requests", "assets.extra/models.config",
        "batching_params.pbtxt",
    }  # fmt: skip
    manifest = json.loads((exported / "assets" / "export_manifest.json").read_text())
    assert (manifest["model_version"], manifest["max_seq_length"], manifest["precision"]) == (3, 64, "float32")
    assert manifest["heads"] == ["masked_lm", "sentence_order"]
    assert manifest["signatures"] == [
        "embeddings",
        "mlm",
        "serving_default",
        "serving_pair",
        "sop",
        "tokenize",
        "tokens",
    ]


def test_no_slot_and_no_other_variable_than_the_models_is_in_it(served_checkpoint, exported):
    checkpoint = open_checkpoint(served_checkpoint)
    assert any("adam_m" in name for name in checkpoint.stored)
    names = [name for name, _ in tf.train.list_variables(str(exported / "variables" / "variables"))]
    assert len([name for name in names if "VARIABLE_VALUE" in name]) == len(checkpoint.names)


def test_an_export_is_recognised_by_its_weights(served_checkpoint, exported, tmp_path):
    checkpoint = open_checkpoint(served_checkpoint)
    assert saved_model_writer.is_export_of(exported, checkpoint)
    other = {name: checkpoint.read(name) for name in checkpoint.shapes}
    other["bert/pooler/dense/bias"] = other["bert/pooler/dense/bias"] + 1e-6
    for file in served_checkpoint.iterdir():
        if not file.name.startswith("model.ckpt"):
            os.symlink(file, tmp_path / file.name)
    tf.train.Checkpoint(weights={n: tf.Variable(v) for n, v in other.items()}).write(str(tmp_path / "model.ckpt-1"))
    assert not saved_model_writer.is_export_of(exported, open_checkpoint(tmp_path))


@pytest.mark.parametrize(
    "stage", ["tf.saved_model.save", "write_serving_files", "write_warmup_records", "write_json", "check_saved_model"]
)
def test_an_interrupted_export_leaves_nothing(served_checkpoint, tmp_path, monkeypatch, stage):
    """At each stage the version's directory does not exist, and nothing stays behind."""

    def interrupt(*arguments, **_):
        assert not (tmp_path / "1").exists()
        raise KeyboardInterrupt

    for name in ("write_warmup_records", "check_saved_model"):  # they take long
        monkeypatch.setattr(saved_model_writer, name, lambda *_, **__: None)
    monkeypatch.setattr(saved_model_writer.tf.saved_model, "save", lambda _, path, **__: os.mkdir(path))
    monkeypatch.setattr(saved_model_writer.ServedModel, "signatures", lambda _: {})
    if stage == "tf.saved_model.save":
        monkeypatch.setattr(saved_model_writer.tf.saved_model, "save", interrupt)
    else:
        monkeypatch.setattr(saved_model_writer, stage, interrupt)
    with pytest.raises(KeyboardInterrupt):
        saved_model_writer.export_saved_model(open_checkpoint(served_checkpoint), output_dir=tmp_path, version=1)
    assert not list(tmp_path.iterdir())


def test_bad_requests_are_refused(served_checkpoint, exported, tmp_path):
    checkpoint = open_checkpoint(served_checkpoint)
    with pytest.raises(UserError, match="a served version is never changed"):
        saved_model_writer.export_saved_model(checkpoint, output_dir=exported.parent, version=3)
    with pytest.raises(UserError, match="may not exceed the model's 64 positions; received 65"):
        saved_model_writer.export_saved_model(checkpoint, output_dir=tmp_path, version=1, max_seq_length=65)
    with pytest.raises(UserError, match="is not an export and holds none"):
        saved_model_writer.check_export(tmp_path)  # an empty directory


def test_python_loads_it_too(exported):
    serve = tf.saved_model.load(str(exported)).signatures["serving_default"]
    answers = serve(text=tf.constant(["Call me Ishmael."]))
    assert answers["pooled_embedding"].shape == (1, 32)
    assert np.isfinite(answers["pooled_embedding"]).all()


@pytest.mark.slow
def test_a_wordpiece_model_answers_text_as_the_model_answers_its_ids(tmp_path):
    for file in (GOLDEN / "tf1_checkpoint" / "groups2_slots").iterdir():
        shutil.copy(file, tmp_path)
    pieces = (GOLDEN / "tokenization" / "vocab_chinese.txt").read_text(encoding="utf-8").split("\n")[100:700]
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", *pieces[:599]]) + "\n", encoding="utf-8")
    checkpoint = open_checkpoint(tmp_path)
    exported = saved_model_writer.export_saved_model(checkpoint, output_dir=tmp_path / "export", version=1)
    tokenizer = checkpoint.load_tokenizer()
    text = "The end, \u4e00\u4e01 \u00e9a."
    ids = tokenizer.encode(text)
    assert 0 < ids.count(tokenizer.unk_id) < len(ids)
    input_ids = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    inputs = {"input_ids": input_ids, "input_mask": np.ones_like(input_ids), "segment_ids": np.zeros_like(input_ids)}
    expected = load_encoder(tmp_path)(inputs)["pooled_output"]
    answers = SessionModel(exported).run("serving_default", {"text": np.array([text.encode()])})
    np.testing.assert_allclose(answers["pooled_embedding"], expected, atol=1e-5)


def test_what_is_no_export_of_this_project_is_told(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(UserError, match="is no export of this project, .* no assets/export_manifest.json; make one"):
        check_export(tmp_path)
    with pytest.raises(UserError, match="is not an export and holds none"):
        check_export(tmp_path / "none")
