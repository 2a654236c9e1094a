"""What the first version wrote is read, answers the same, and goes on where it stopped (tests/data/of_version_0)."""

import json
import shutil
import subprocess
import sys

import checks
import keras
import numpy as np
import pytest
from conftest import DATA

import albert_tf.encoder  # noqa: F401  # what README of that version told users of `.keras` files to import
from albert_tf import load_encoder, load_engine, load_tokenizer

WRITTEN = DATA / "of_version_0"
COMMON = (
    "--num_train_steps=40", "--save_checkpoints_steps=20", "--iterations_per_loop=5", "--eval_batch_size=16",
    "--learning_rate=0.005", "--precision=float32",
)  # fmt: skip
RUNS = {
    "run": ("--albert_config_file=albert_config.json", "--optimizer=lamb", "--train_batch_size=16",
            "--input_file=records/train-*", "--eval_input_file=records/eval-*"),
    "run_adamw": ("--albert_config_file=albert_config_adamw.json", "--optimizer=adamw", "--train_batch_size=8",
                  "--gradient_accumulation_steps=2", "--init_output_bias=unigram",
                  "--input_file=records_dynamic/train-*", "--eval_input_file=records_dynamic/eval-*"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_is_continued_to_the_same_weights(name, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(WRITTEN, copy)
    command = ["-m", "albert_tf.run_pretraining", *COMMON, *RUNS[name], f"--output_dir={name}"]
    process = subprocess.run([sys.executable, *command], cwd=copy, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    expected, weights = np.load(WRITTEN / f"{name}_weights_at_40.npz"), checks.read_weights(copy / name)
    assert set(weights) == set(expected.files)
    # The same bits on the machine that wrote them; elsewhere within the rounding of 20 steps.
    for key in weights:
        assert np.abs(weights[key] - expected[key]).max() < 1e-4, key
    lines = [json.loads(line) for line in (copy / name / "metrics.jsonl").read_text().splitlines()]
    theirs = [json.loads(line) for line in (WRITTEN / f"{name}_metrics_21_to_40.jsonl").read_text().splitlines()]
    ours = [line for line in lines if line["step"] > 20]
    assert [(line["split"], line["step"]) for line in ours] == [(line["split"], line["step"]) for line in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)


@pytest.mark.parametrize("name", ["vocab", "vocab_cased"])
def test_tokenizers_keep_their_ids_and_fingerprints(name):
    recorded = json.loads((WRITTEN / name / "ids.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(WRITTEN / name)
    assert tokenizer.fingerprint == recorded["fingerprint"]
    assert len(recorded["ids"]) == 295
    assert {text: tokenizer.encode(text) for text in recorded["ids"]} == recorded["ids"]


def test_a_keras_file_loads_and_answers_the_same():
    recorded = np.load(WRITTEN / "encoder_outputs.npz")
    model = keras.models.load_model(WRITTEN / "encoder.keras")
    inputs = {name: recorded[name] for name in ("input_ids", "input_mask", "segment_ids")}
    assert np.abs(model(inputs) - recorded["logits"]).max() < 1e-5


def test_a_classifier_answers_the_same():
    recorded = np.load(WRITTEN / "classifier_answers.npz")
    engine = load_engine(WRITTEN / "classifier", precision="float32")
    assert list(engine.labels) == list(recorded["labels"])
    tokenized = engine.tokenize([str(text) for text in recorded["texts"]])
    for output in ("pooled_embedding", "mean_embedding", "cls_embedding", "sequence_classification"):
        answers = np.stack(engine.answer(tokenized, output=output))
        assert np.abs(answers - recorded[output]).max() < 1e-5, output


def test_a_hugging_face_directory_is_the_run_it_was_made_of():
    ours, theirs = (load_encoder(WRITTEN / name) for name in ("run", "hf"))
    for one, other in zip(ours.weights, theirs.weights, strict=True):
        assert np.array_equal(one, other)
