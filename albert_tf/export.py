"""The SavedModel: an encoder that TF Serving runs on plain text, checked as TF Serving loads it.

The graph holds plain ops, float32 weights and the tokenizer; no optimizer, no Keras object. It is written under a
temporary name, loaded in a fresh process without this project and without Keras, compared, and only then renamed.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import (
    CONFIG_FILE,
    assign_weights,
    checkpoint_prefix,
    named_variables,
    read_weights,
)
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.files import write_json
from albert_tf.graph_tokenizer import GraphTokenizer
from albert_tf.heads import AlbertWithHeads
from albert_tf.tokenizer import TOKENIZER_DIRECTORY, Tokenizer, load_tokenizer
from albert_tf.version import __version__

MANIFEST_FILE = "export_manifest.json"
CHECK_TOLERANCE = 1e-5

_CHECK_TEXTS = ("The quick brown fox jumps over the lazy dog.", "", "Two sentences. \u00c9t\u00e9 2,500!")


class ServedEncoder(tf.Module):
    """Plain text to embeddings. Tracks variables, not Keras layers, which the loader of TF Serving cannot restore."""

    def __init__(self, model: AlbertWithHeads, tokenizer: Tokenizer, *, max_seq_length: int) -> None:
        super().__init__(name="albert")
        self.variables_of_model = [variable.value for variable in model.encoder.variables]
        self.tokenizer = GraphTokenizer(tokenizer)
        self._cls_id, self._sep_id, self._pad_id = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
        self._max_seq_length = max_seq_length
        encoder = model.encoder

        def embed(text: tf.Tensor) -> dict[str, tf.Tensor]:
            input_ids, input_mask = self._pack(text)
            segment_ids = tf.zeros_like(input_ids)
            outputs = encoder({"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids})
            return {
                "pooled_embedding": outputs["pooled_output"],
                "mean_embedding": _mean_of_tokens(outputs["sequence_output"], input_mask),
            }

        self.embed = tf.function(embed, input_signature=[tf.TensorSpec([None], tf.string, name="text")])

    def _pack(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns input_ids and input_mask [batch, longest]: [CLS] text [SEP], cut at the end, then padded."""
        tokens = self.tokenizer.tokenize(text)[:, : self._max_seq_length - 2]
        ones = tf.ones([tf.shape(text)[0], 1], tf.int32)
        packed = tf.concat([self._cls_id * ones, tokens, self._sep_id * ones], axis=1)
        return packed.to_tensor(self._pad_id), tf.ones_like(packed).to_tensor(0)


def _mean_of_tokens(sequence_output: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the mean over a text's tokens without [CLS] and [SEP] [batch, hidden]; zeros for an empty text."""
    # Shifted left by one, the mask covers the tokens and [SEP] less one: [CLS] is dropped in front, [SEP] at the end.
    inside = tf.concat([tf.zeros_like(input_mask[:, :1]), input_mask[:, 2:], tf.zeros_like(input_mask[:, :1])], axis=1)
    weights = tf.cast(inside, tf.float32)[:, :, None]
    return tf.math.divide_no_nan(tf.reduce_sum(sequence_output * weights, axis=1), tf.reduce_sum(weights, axis=1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSource:
    """What is exported: encoder weights by TF1 name, the model's shape, the tokenizer, and where they come from."""

    weights: Mapping[str, np.ndarray]
    config: AlbertConfig
    tokenizer: Tokenizer
    checkpoint: str

    @classmethod
    def load(cls, checkpoint: str) -> "ExportSource":
        """Reads a checkpoint of run_pretraining with the configuration and tokenizer that stand beside it."""
        prefix = checkpoint_prefix(checkpoint)
        directory = Path(prefix).parent
        if not (directory / TOKENIZER_DIRECTORY).exists():
            raise UserError(
                f"{directory} has no {TOKENIZER_DIRECTORY}/ beside its checkpoints; a served model needs one"
            )
        return cls(
            weights=read_weights(prefix),
            config=AlbertConfig.load(directory / CONFIG_FILE),
            tokenizer=load_tokenizer(directory / TOKENIZER_DIRECTORY),
            checkpoint=prefix,
        )


def export_saved_model(
    source: ExportSource, *, output_dir: Path, version: int, max_seq_length: int | None = None
) -> Path:
    """Writes and checks `<output_dir>/<version>`; returns that directory.

    `serving_default` takes `text`, strings [batch], and returns `pooled_embedding` and `mean_embedding`, float32
    [batch, hidden]; texts are cut to `max_seq_length` tokens (None: all positions the model has).
    """
    target = output_dir / str(version)
    if target.exists():
        raise UserError(f"{target} exists; a served version is never changed: choose another --version")
    positions = source.config.max_position_embeddings
    length = max_seq_length or positions
    if length > positions:
        raise UserError(f"--max_seq_length may not exceed the model's {positions} positions; received {length}")
    model = AlbertWithHeads(source.config, heads=())
    assign_weights(named_variables(model), source.weights, source=source.checkpoint)
    served = ServedEncoder(model, source.tokenizer, max_seq_length=length)
    temporary = output_dir / f".{version}.tmp-{os.getpid()}"
    try:
        signatures = {"serving_default": served.embed.get_concrete_function()}
        tf.saved_model.save(served, str(temporary), signatures=signatures)
        _write_assets(temporary / "assets", source, version=version, max_seq_length=length)
        expected = {name: value.numpy() for name, value in served.embed(tf.constant(_CHECK_TEXTS)).items()}
        check_saved_model(temporary, expected)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    logging.info("Exported %s to %s", source.checkpoint, target)
    return target


def _write_assets(directory: Path, source: ExportSource, *, version: int, max_seq_length: int) -> None:
    directory.mkdir(exist_ok=True)
    source.tokenizer.save(directory)
    source.config.save(directory / CONFIG_FILE)
    manifest: dict[str, Any] = {
        "albert_tf_version": __version__,
        "tensorflow_version": tf.__version__,
        "model_version": version,
        "checkpoint": Path(source.checkpoint).name,
        "tokenizer_fingerprint": source.tokenizer.fingerprint,
        "max_seq_length": max_seq_length,
    }
    write_json(directory / MANIFEST_FILE, manifest)


# Runs in a process of its own. Keras is made unimportable, and the tf-text ops are loaded as TF Serving links them:
# without their Python package.
_CHECK_PROGRAM = """
import importlib.util, os, sys
sys.modules["keras"] = None
import numpy as np
import tensorflow as tf
package = os.path.dirname(importlib.util.find_spec("tensorflow_text").origin)
for library in ("_sentencepiece_tokenizer.so", "_normalize_ops.so"):
    tf.load_op_library(os.path.join(package, "python", "ops", library))
directory, texts_file, answers_file = sys.argv[1:]
graph = tf.Graph()
with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], directory)
    signature = loaded.signature_def["serving_default"]
    outputs = {name: info.name for name, info in signature.outputs.items()}
    texts = np.load(texts_file)
    feeds = {signature.inputs["text"].name: [text.encode() for text in texts]}
    np.savez(answers_file, **session.run(outputs, feeds))
"""


def check_saved_model(directory: Path, expected: Mapping[str, np.ndarray]) -> None:
    """Loads a SavedModel as TF Serving does and compares its answers; raises RuntimeError where they differ."""
    texts_file, answers_file = directory / "check_texts.npy", directory / "check_answers.npz"
    try:
        np.save(texts_file, np.array(_CHECK_TEXTS))
        command = [sys.executable, "-c", _CHECK_PROGRAM, str(directory), str(texts_file), str(answers_file)]
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        process = subprocess.run(command, capture_output=True, text=True, env=environment)
        if process.returncode:
            raise RuntimeError(f"the SavedModel does not load as TF Serving loads it:\n{process.stderr[-2000:]}")
        with np.load(answers_file) as answers:
            for name, value in expected.items():
                difference = np.abs(answers[name] - value).max()
                if not difference <= CHECK_TOLERANCE:
                    raise RuntimeError(f"the SavedModel answers {name} with a difference of {difference}")
    finally:
        texts_file.unlink(missing_ok=True)
        answers_file.unlink(missing_ok=True)
