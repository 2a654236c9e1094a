import json

import checkpoint_files
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from conftest import GOLDEN, ROOT

from albert_tf.checkpoints.discovery import find_checkpoint
from albert_tf.checkpoints.opening import open_checkpoint
from albert_tf.errors import UserError

PLAIN, GROUPS = "tf1_checkpoint/plain", "tf1_checkpoint/groups2_slots"
INDEXES = ROOT.parent / "shared" / "data" / "albert_checkpoint_index"


def assert_same_weights(opened, case=PLAIN):
    expected = checkpoint_files.read_tf1(case)
    assert set(opened.shapes) == {n for n in expected if not n.endswith(("global_step", "/adam_m", "/adam_v"))}
    for name in opened.shapes:
        assert opened.read(name).tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize(
    "form", ["", "/model.ckpt-best", "/model.ckpt-best.index", "/model.ckpt-best.data-00000-of-00001"]
)
def test_a_tf1_checkpoint_is_found_by_any_of_its_names(form):
    assert_same_weights(open_checkpoint(f"{GOLDEN / PLAIN}{form}"))


def test_a_checkpoint_file_counts_by_the_name_in_it_wherever_its_path_was(tmp_path):
    tensors = checkpoint_files.read_tf1(PLAIN)
    checkpoint_files.write_tf1(tmp_path, tensors, name="model.ckpt-5")
    checkpoint_files.write_tf1(tmp_path, tensors, name="model.ckpt-10")
    with pytest.raises(UserError, match="holds 2 of them; name one"):
        open_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/cns/home/albert/model.ckpt-5"\n')
    assert open_checkpoint(tmp_path).path == str(tmp_path / "model.ckpt-5")


def test_a_tf_hub_module_is_read_without_its_prefix(tmp_path):
    tensors = {f"module/{name}": value for name, value in checkpoint_files.read_tf1(PLAIN).items()}
    checkpoint_files.write_tf1(tmp_path / "variables", tensors, name="variables")
    (tmp_path / "saved_model.pb").write_bytes(b"")
    (tmp_path / "variables" / "albert_config.json").rename(tmp_path / "albert_config.json")
    for path in (tmp_path, tmp_path / "variables"):
        assert_same_weights(open_checkpoint(path))


def test_slots_are_no_weights_whatever_their_optimizer_calls_them(tmp_path):
    tensors = checkpoint_files.read_tf1(GROUPS)
    assert_same_weights(open_checkpoint(GOLDEN / GROUPS), GROUPS)
    renamed = {name.replace("/adam_", "/lamb_"): value for name, value in tensors.items()}
    opened = open_checkpoint(checkpoint_files.write_tf1(tmp_path, renamed, config_of=GROUPS))
    assert_same_weights(opened, GROUPS)
    assert opened.stored["bert/pooler/dense/bias/adam_m"] == "bert/pooler/dense/bias/lamb_m"


@pytest.mark.skipif(not INDEXES.exists(), reason="the indexes of released checkpoints are not here")
def test_every_name_and_shape_of_a_released_checkpoint_is_mapped():
    opened = open_checkpoint(INDEXES / "albert_base_zh_google")
    recorded = tf.train.load_checkpoint(str(INDEXES / "albert_base_zh_google" / "model.ckpt-best"))
    shapes = {name: tuple(shape) for name, shape in recorded.get_variable_to_shape_map().items()}
    assert {**opened.shapes, "global_step": ()} == shapes
    assert (opened.heads, opened.config.hidden_act) == (("masked_lm", "sentence_order"), "relu")
    assert opened.load_tokenizer().vocab_size == 21128
    with pytest.raises(UserError, match=r"cannot be read.*data-00000-of-00001"):
        opened.read("bert/pooler/dense/bias")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert/encoder/layer_shared/attention/self/key/kernel", "albert_zh's own layout"),
        ("bert/encoder/transformer/group_0_1/layer_1/inner_group_0/layer_normalization_3/gamma", "are not shared"),
        ("bert/encoder/layer_0/attention/self/key/kernel", "a BERT"),
        ("model/encoder/kernel/.ATTRIBUTES/VARIABLE_VALUE", "object-based TensorFlow 2 checkpoint of another program"),
    ],
)
def test_layouts_that_cannot_be_represented_are_refused_by_name(tmp_path, name, message):
    checkpoint_files.write_tf1(tmp_path, {name: np.zeros(3, np.float32)})
    with pytest.raises(UserError, match=message):
        open_checkpoint(tmp_path)


def test_half_precision_widens_and_double_precision_is_refused(tmp_path):
    tensors = checkpoint_files.read_safetensors("hf/pretraining")
    half = {name: value.astype(np.float16) for name, value in tensors.items()}
    opened = open_checkpoint(checkpoint_files.write_safetensors(tmp_path / "half", half))
    expected = half["albert.pooler.bias"].astype(np.float32)
    assert opened.read("bert/pooler/dense/bias").tobytes() == expected.tobytes()
    double = {name: value.astype(np.float64) for name, value in tensors.items()}
    opened = open_checkpoint(checkpoint_files.write_safetensors(tmp_path / "double", double))
    with pytest.raises(UserError, match="is float64; weights must be float32"):
        opened.read("bert/pooler/dense/bias")


def test_integers_are_no_weights_and_the_choices_of_a_question_have_no_names(tmp_path):
    tensors = checkpoint_files.read_tf1(PLAIN) | {"bert/pooler/dense/bias": np.arange(32, dtype=np.int32)}
    with pytest.raises(UserError, match="bert/pooler/dense/bias is int32"):
        open_checkpoint(checkpoint_files.write_tf1(tmp_path / "tf1", tensors)).read("bert/pooler/dense/bias")
    case, labels = "hf/multiple_choice", {"0": "A", "1": "B", "2": "C", "3": "D"}
    tensors = checkpoint_files.read_safetensors(case)
    checkpoint_files.write_safetensors(tmp_path / "hf", tensors, config_of=case, config={"id2label": labels})
    assert open_checkpoint(tmp_path / "hf").labels is None


def test_older_files_of_hugging_face_repeat_tied_tensors_and_hold_buffers(tmp_path):
    tensors = checkpoint_files.read_safetensors("hf/pretraining")
    older = {
        **tensors,
        "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"],
        "predictions.decoder.bias": tensors["predictions.bias"],
        "albert.embeddings.position_ids": np.arange(64)[None],
    }
    opened = open_checkpoint(checkpoint_files.write_safetensors(tmp_path / "older", older))
    assert opened.shapes == open_checkpoint(GOLDEN / "hf" / "pretraining").shapes
    assert set(opened.inert) == set(older) - set(tensors)
    del older["predictions.bias"], older["albert.embeddings.word_embeddings.weight"]
    opened = open_checkpoint(checkpoint_files.write_safetensors(tmp_path / "once", older))
    assert opened.read("cls/predictions/output_bias").tobytes() == tensors["predictions.bias"].tobytes()
    untied = {**tensors, "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"] + 1}
    with pytest.raises(UserError, match="predictions.decoder.weight differs from .*word_embeddings.* ties it"):
        open_checkpoint(checkpoint_files.write_safetensors(tmp_path / "untied", untied))


def test_an_encoder_alone_is_saved_without_a_prefix(tmp_path):
    tensors = checkpoint_files.read_safetensors("hf/pretraining")
    bare = {n.removeprefix("albert."): value for n, value in tensors.items() if n.startswith("albert.")}
    opened = open_checkpoint(
        checkpoint_files.write_safetensors(tmp_path, bare, config={"architectures": ["AlbertModel"]})
    )
    assert (opened.heads, opened.has_pooler, len(opened.shapes)) == ((), True, 25)
    assert opened.read("bert/pooler/dense/bias").tobytes() == tensors["albert.pooler.bias"].tobytes()


def test_a_model_in_several_files_is_read_by_its_index(tmp_path):
    tensors = checkpoint_files.read_safetensors("hf/pretraining")
    checkpoint_files.write_safetensors(tmp_path, {})
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for file, part in (
        ("model-00001-of-00002.safetensors", names[:9]),
        ("model-00002-of-00002.safetensors", names[9:]),
    ):
        safetensors.numpy.save_file({name: tensors[name] for name in part}, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert open_checkpoint(tmp_path).shapes == open_checkpoint(GOLDEN / "hf" / "pretraining").shapes
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match="lacks model-00002-of-00002.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("value", ["identity", "trained"])
def test_a_projection_that_alberts_do_not_have_must_be_the_identity(tmp_path, value):
    tensors = checkpoint_files.read_safetensors("hf/question_answering")
    rng = np.random.default_rng(0)
    for name in tensors:
        if name.startswith("albert.embeddings"):
            tensors[name] = rng.normal(size=(*tensors[name].shape[:-1], 32)).astype(np.float32)
    scale = 1.0 if value == "identity" else 2.0
    tensors["albert.encoder.embedding_hidden_mapping_in.weight"] = scale * np.eye(32, dtype=np.float32)
    tensors["albert.encoder.embedding_hidden_mapping_in.bias"] = np.zeros(32, np.float32)
    checkpoint_files.write_safetensors(
        tmp_path, tensors, config_of="hf/question_answering", config={"embedding_size": 32}
    )
    if value == "trained":
        with pytest.raises(UserError, match="must be the identity"):
            open_checkpoint(tmp_path)
    else:
        assert "bert/encoder/embedding_hidden_mapping_in/kernel" not in open_checkpoint(tmp_path).shapes


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("pytorch_model.bin", "is a pickle"),
        ("tf_model.h5", "other kinds of files are not read"),
        ("notes.txt", r"is not a checkpoint: there is no \*.index"),
    ],
)
def test_other_files_are_refused_with_advice(tmp_path, file, message):
    (tmp_path / file).write_bytes(b"x")
    for path in (tmp_path, tmp_path / file):
        for source_format in (None, "hf"):
            with pytest.raises(UserError, match=message):
                find_checkpoint(str(path), source_format=source_format)


def test_what_is_not_there_or_not_clear_is_refused(tmp_path):
    for path, message in (("", "is empty"), (str(tmp_path / "none"), "does not exist")):
        with pytest.raises(UserError, match=message):
            find_checkpoint(path)
    checkpoint_files.copy_golden(PLAIN, tmp_path)
    checkpoint_files.copy_golden("hf/pretraining", tmp_path)
    with pytest.raises(UserError, match="of TensorFlow and of Hugging Face; name one of its files"):
        find_checkpoint(str(tmp_path))
    assert find_checkpoint(str(tmp_path), source_format="tf1").format == "tf1"
    assert find_checkpoint(str(tmp_path / "model.safetensors")).format == "hf"
    (tmp_path / "albert_config.json").unlink()
    with pytest.raises(UserError, match="has no albert_config.json beside it"):
        find_checkpoint(str(tmp_path), source_format="tf1")
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match="config.json' does not exist"):
        find_checkpoint(str(tmp_path), source_format="hf")
