import json
import os
import re
import subprocess
from pathlib import Path

import checkpoint_files
import checks
import golden_models
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.architecture.config import AlbertConfig
from albert_tf.checkpoints import tensor_files
from albert_tf.checkpoints.converter import convert
from albert_tf.checkpoints.opening import load_model, open_checkpoint
from albert_tf.errors import UserError
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.training.kept_checkpoints import RunCheckpoints
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule

TF1 = (*golden_models.TF1_PRETRAINING, *golden_models.TF1_FINETUNED)
FOR_HUGGING_FACE = tuple(case for case in TF1 if not case.endswith("squad_v2"))


def run(source, target, target_format=None, **options):
    convert(ConvertConfig(source=str(source), target=str(target), target_format=target_format, **options))
    return target


def tensors_of_tf1(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_tensors(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert np.asarray(actual[name]).tobytes() == np.asarray(value).tobytes(), name


@pytest.mark.parametrize("case", TF1)
def test_tf1_to_native_and_back_gives_the_same_bytes_and_names(case, tmp_path):
    slots = case.endswith("slots")
    run(GOLDEN / case, tmp_path / "native", include_optimizer=slots)
    run(tmp_path / "native", tmp_path / "tf1", "tf1", include_optimizer=slots)
    assert_same_tensors(tensors_of_tf1(tmp_path / "tf1" / "model.ckpt-best"), checkpoint_files.read_tf1(case))
    config = json.loads((GOLDEN / case / "albert_config.json").read_text())
    assert json.loads((tmp_path / "tf1" / "albert_config.json").read_text()) == config
    golden_models.check(load_model(tmp_path / "native", label_head=golden_models.LABEL_HEADS.get(case)), case)


@pytest.mark.parametrize("case", golden_models.HUGGING_FACE)
def test_hugging_face_to_native_and_back_gives_the_same_bytes_names_and_configuration(case, tmp_path):
    run(GOLDEN / case, tmp_path / "native")
    run(tmp_path / "native", tmp_path / "hf", "hf")
    written = safetensors.numpy.load_file(tmp_path / "hf" / "model.safetensors")
    assert_same_tensors(written, checkpoint_files.read_safetensors(case))
    config = json.loads((GOLDEN / case / "config.json").read_text())
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == config
    golden_models.check(load_model(tmp_path / "native"), case)


@pytest.mark.parametrize("case", golden_models.HUGGING_FACE)
def test_hugging_face_to_tf1_and_back_gives_the_same_bytes_and_names(case, tmp_path):
    run(GOLDEN / case, tmp_path / "tf1", "tf1")
    run(tmp_path / "tf1", tmp_path / "hf", "hf")
    written = safetensors.numpy.load_file(tmp_path / "hf" / "model.safetensors")
    assert_same_tensors(written, checkpoint_files.read_safetensors(case))


@pytest.mark.parametrize("case", FOR_HUGGING_FACE)
def test_tf1_to_hugging_face_keeps_outputs_and_gradients(case, tmp_path):
    label_head = golden_models.LABEL_HEADS.get(case)
    run(GOLDEN / case, tmp_path / "hf", "hf", label_head=label_head)
    golden_models.check(load_model(tmp_path / "hf"), case)


def tiny_tf1(directory, **changes):
    """Writes a random model of these settings as TF1 does; returns it."""
    model = AlbertWithHeads(checks.tiny_config(**changes))
    weights = checks.randomize(model)
    checkpoint_files.write_tf1(directory, weights)
    model.config.save(directory / "albert_config.json")
    return model, weights


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_size": 16},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_erf"},
    ],
    ids=str,
)
def test_other_shapes_and_activations_go_to_hugging_face_and_come_back(changes, tmp_path):
    model, weights = tiny_tf1(tmp_path / "tf1", **changes)
    run(tmp_path / "tf1", tmp_path / "hf", "hf")
    run(tmp_path / "hf", tmp_path / "back", "tf1")
    assert_same_tensors(tensors_of_tf1(tmp_path / "back" / "model.ckpt-best"), weights)
    assert AlbertConfig.load(tmp_path / "back" / "albert_config.json").hidden_act == model.config.hidden_act
    written = safetensors.numpy.load_file(tmp_path / "hf" / "model.safetensors")
    projection = written["albert.encoder.embedding_hidden_mapping_in.weight"]
    assert np.array_equal(projection, np.eye(16)) == (model.config.embedding_size == 16)


def test_layers_with_weights_of_their_own_are_groups_elsewhere_and_half_sharing_is_refused(tmp_path, english_tokenizer):
    for mode in ("none", "attention"):
        model = AlbertWithHeads(checks.tiny_config(parameter_sharing=mode, vocab_size=30000))
        checks.randomize(model)
        (tmp_path / mode).mkdir()
        checks.save_run_directory(tmp_path / mode, model, english_tokenizer)
    for target_format in ("tf1", "hf"):
        opened = open_checkpoint(run(tmp_path / "none", tmp_path / target_format, target_format))
        assert (opened.config.parameter_sharing, opened.config.num_hidden_groups) == ("all", 3)
        assert len(opened.shapes) == len(open_checkpoint(tmp_path / "none").shapes)
        with pytest.raises(UserError, match="'attention' with 3 layers exists only in this project"):
            run(tmp_path / "attention", tmp_path / "refused", target_format)


def test_groups_that_hugging_face_would_assign_otherwise_are_refused(tmp_path):
    tiny_tf1(tmp_path / "tf1", num_hidden_layers=18, num_hidden_groups=14)
    with pytest.raises(UserError, match="assigns 18 layers to 14 groups in another way"):
        run(tmp_path / "tf1", tmp_path / "hf", "hf")


def test_a_model_larger_than_one_part_is_written_in_several(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_PART_BYTES", 20_000)
    case = "tf1_checkpoint/plain"
    run(GOLDEN / case, tmp_path / "hf", "hf")
    assert len(list((tmp_path / "hf").glob("model-0000?-of-0000?.safetensors"))) > 2
    run(tmp_path / "hf", tmp_path / "native")
    run(tmp_path / "native", tmp_path / "tf1", "tf1")
    assert len(list((tmp_path / "tf1").glob("*.data-*"))) > 2
    expected = {n: value for n, value in checkpoint_files.read_tf1(case).items() if n != "global_step"}
    assert_same_tensors(tensors_of_tf1(tmp_path / "tf1" / "model.ckpt-best"), expected)


def test_moments_that_are_left_out_are_named_so(tmp_path):
    source, target = str(GOLDEN / "tf1_checkpoint" / "groups2_slots"), str(tmp_path / "run")
    report = "\n".join(convert(ConvertConfig(source=source, target=target)))
    assert re.search(r"left out 0, optimizer moments left out \d+ \(--include_optimizer keeps them\)", report)
    assert f"none stands beside the source; put its spiece.model or vocab.txt into {target}" in report


def test_a_converted_run_is_continued_with_its_moments_and_step(tmp_path):
    case = "tf1_checkpoint/groups2_slots"
    run(GOLDEN / case, tmp_path / "run", include_optimizer=True)
    model = AlbertWithHeads(AlbertConfig.load(tmp_path / "run" / "albert_config.json"))
    variables = named_variables(model)
    schedule = LearningRateSchedule(1.0, num_train_steps=9, num_warmup_steps=0)
    optimizer = AlbertOptimizer("lamb", variables, schedule=schedule)
    step = tf.Variable(0, dtype=tf.int64)
    restored = RunCheckpoints(
        tmp_path / "run", variables=variables, optimizer=optimizer, state={"global_step": step}, keep=1
    )
    assert restored.restore_latest()
    assert_same_tensors({**variables, **optimizer.slots, "global_step": step}, checkpoint_files.read_tf1(case))


def test_the_tokenizer_and_the_labels_travel(tmp_path, english_tokenizer):
    model = AlbertWithHeads(checks.tiny_config(vocab_size=30000), heads=("token_classification",), num_labels=2)
    weights = checks.randomize(model)
    checkpoint_files.write_tf1(tmp_path / "tf1", weights)
    model.config.save(tmp_path / "tf1" / "albert_config.json")
    english_tokenizer.save(tmp_path / "tf1")
    label_head = {"head": "token_classification", "labels": ["O", "B-PER"]}
    (tmp_path / "tf1" / "label_head.json").write_text(json.dumps(label_head))
    run(tmp_path / "tf1", tmp_path / "hf", "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["id2label"] == {"0": "O", "1": "B-PER"} and config["label2id"] == {"O": 0, "B-PER": 1}
    assert config["architectures"] == ["AlbertForTokenClassification"]
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 2, 3)
    run(tmp_path / "hf", tmp_path / "native")
    opened = open_checkpoint(tmp_path / "native")
    assert (opened.heads, opened.labels) == (("token_classification",), ("O", "B-PER"))
    assert opened.load_tokenizer().fingerprint == english_tokenizer.fingerprint


def test_missing_and_unused_names_are_errors_unless_they_are_meant(tmp_path):
    tensors = checkpoint_files.read_tf1("tf1_checkpoint/plain")
    del tensors["cls/predictions/output_bias"]
    checkpoint_files.write_tf1(tmp_path / "tf1", {**tensors, "my/own/variable": np.zeros(2, np.float32)})
    with pytest.raises(UserError, match=r"lacks cls/predictions/output_bias \(31 of 32 weights were found\)"):
        run(tmp_path / "tf1", tmp_path / "target")
    with pytest.raises(UserError, match="nothing uses, my/own/variable"):
        run(tmp_path / "tf1", tmp_path / "target", allow_missing="output_bias$")
    with pytest.raises(UserError, match="must be a regular expression"):
        run(tmp_path / "tf1", tmp_path / "target", allow_missing="(")
    config = ConvertConfig(
        source=str(tmp_path / "tf1"),
        target=str(tmp_path / "target"),
        allow_missing="^cls/predictions/output_bias$|^my/",
    )
    assert "missing 1 (cls/predictions/output_bias), unused 1 (my/own/variable), left out 0" in "\n".join(
        convert(config)
    )
    assert "cls/predictions/output_bias" in open_checkpoint(tmp_path / "target", allow_missing="output_bias$").missing


def test_what_the_target_cannot_hold_is_refused_and_nothing_is_left(tmp_path):
    cases = [
        ("finetune_heads/squad_v2", "hf", {}, "no ALBERT class of Hugging Face has these"),
        ("tf1_checkpoint/plain", None, {"include_optimizer": True}, "lacks 64 of 64, among them"),
        ("tf1_checkpoint/groups2_slots", "hf", {"include_optimizer": True}, "holds weights only"),
    ]
    for case, target_format, options, message in cases:
        with pytest.raises(UserError, match=message):
            run(GOLDEN / case, tmp_path / "target", target_format, **options)
    run(GOLDEN / "tf1_checkpoint/plain", tmp_path / "native")
    with pytest.raises(UserError, match="--target_format must be tf1 or hf"):
        run(tmp_path / "native", tmp_path / "target")
    with pytest.raises(UserError, match="exists; nothing is overwritten"):
        run(GOLDEN / "tf1_checkpoint/plain", tmp_path / "native")
    checkpoint_files.copy_golden("tf1_checkpoint/plain", tmp_path / "cut")
    wide = checkpoint_files.write_tf1(tmp_path / "wide", {"bert/pooler/dense/bias": np.zeros(99, np.float32)})
    with pytest.raises(UserError, match=r"dense/bias has shape \[99\], and the configuration asks for \[32\]"):
        run(wide, tmp_path / "target")
    data = tmp_path / "cut" / "model.ckpt-best.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-5000])
    for target_format in ("native", "tf1", "hf"):
        with pytest.raises(UserError, match="cannot be read"):
            run(tmp_path / "cut", tmp_path / "target", target_format)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "native", "wide"]


# Loads directories in transformers, in the Python of PEERS_PYTHON, and answers with its outputs and loading reports.
_TRANSFORMERS = """
import json, sys, numpy, torch, transformers
answers, reports = {}, {}
for directory, inputs_file in json.loads(sys.argv[1]):
    config = json.load(open(f"{directory}/config.json"))
    model, report = getattr(transformers, config["architectures"][0]).from_pretrained(
        directory, output_loading_info=True, attn_implementation="eager")
    reports[directory] = sorted([*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]])
    names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    inputs = {names.get(n, n): torch.tensor(v, dtype=torch.int64) for n, v in numpy.load(inputs_file).items()
              if n in ("input_ids", "attention_mask", "token_type_ids", "input_mask", "segment_ids")}
    with torch.no_grad():
        outputs = model.eval()(**inputs)
    answers |= {f"{directory}/{n}": v.numpy() for n, v in outputs.items() if torch.is_tensor(v)}
numpy.savez(sys.argv[2], **answers)
print(json.dumps(reports))
"""


@pytest.mark.skipif("PEERS_PYTHON" not in os.environ, reason="PEERS_PYTHON names no Python with transformers 5")
def test_transformers_opens_our_directories_without_a_key_too_many_and_computes_the_same(tmp_path):
    jobs = []
    for case in FOR_HUGGING_FACE:
        target = tmp_path / case.replace("/", "-")
        run(GOLDEN / case, target, "hf", label_head=golden_models.LABEL_HEADS.get(case))
        jobs.append((str(target), str(GOLDEN / case / "inputs.npz")))
    for name, changes in {"wide": {"embedding_size": 16}, "grouped": {"num_hidden_groups": 2, "inner_group_num": 2},
                          "relu": {"hidden_act": "relu"}, "erf": {"hidden_act": "gelu_erf"}}.items():  # fmt: skip
        model, _ = tiny_tf1(tmp_path / f"tf1-{name}", **changes)
        run(tmp_path / f"tf1-{name}", tmp_path / name, "hf")
        batch = {key: value.numpy() for key, value in checks.random_batch(model.config).items()}
        np.savez(tmp_path / f"{name}.npz", **batch)
        jobs.append((str(tmp_path / name), str(tmp_path / f"{name}.npz")))
    command = [os.environ["PEERS_PYTHON"], "-c", _TRANSFORMERS, json.dumps(jobs), str(tmp_path / "a.npz")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1]) == {directory: [] for directory, _ in jobs}
    answers = dict(np.load(tmp_path / "a.npz"))
    names = {"prediction_logits": "masked_lm_logits", "sop_logits": "sentence_order_logits"}
    for directory, inputs in jobs:
        model = load_model(directory)
        arrays = dict(np.load(inputs))
        batch = {n: tf.constant(arrays[n], tf.int32) for n in ("input_ids", "input_mask", "segment_ids")}
        length = batch["input_ids"].shape[-1]
        batch["masked_lm_positions"] = tf.range(length)[None] + tf.zeros([len(arrays["input_ids"]), 1], tf.int32)
        outputs = model(batch)
        theirs = {key[len(directory) + 1 :]: value for key, value in answers.items() if key.startswith(f"{directory}/")}
        compared = [name for name in theirs if name.endswith("logits")]
        assert compared, directory
        for name in compared:
            head = f"{model.head_names[0]}_logits" if name == "logits" else names.get(name, name)
            assert np.abs(outputs[head] - theirs[name]).max() < 2e-5, (Path(directory).name, name)
