"""The SavedModel: a model that TensorFlow Serving runs on plain text, checked as TensorFlow Serving loads it.

The graph holds plain operations, weights and the tokenizer; no optimizer, no Keras object. It is written under a
temporary name, checked in a fresh process, and only then renamed.
"""

from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.native import CONFIG_FILE
from albert_tf.checkpoints.opening import Checkpoint, build_model, open_checkpoint, weights_fingerprint
from albert_tf.errors import UserError
from albert_tf.export.serving_check import CheckReport, check_saved_model
from albert_tf.export.serving_files import write_serving_files, write_warmup_records
from albert_tf.export.signatures import ServedModel
from albert_tf.files import require_writable, whole_directory, write_json
from albert_tf.model.precision import dtype_policy
from albert_tf.saved_model.export_directory import (
    EXPORT_MANIFEST_FILE,
    LABELS_FILE,
    read_export_manifest,
    version_directory,
)
from albert_tf.settings.export import ExportConfig
from albert_tf.text.tokenizer_files import Tokenizer
from albert_tf.version import __version__


def export_or_check(config: ExportConfig) -> None:
    """Does what the command export_saved_model was told."""
    if config.check:
        print("\n".join(check_export(Path(config.saved_model_dir or "")).lines()))
        return
    export_saved_model(
        open_checkpoint(config.checkpoint or "", label_head=config.label_head),
        output_dir=Path(config.output_dir or ""),
        version=config.version,
        max_seq_length=config.max_seq_length,
        precision=config.precision,
    )


def export_saved_model(
    checkpoint: Checkpoint,
    *,
    output_dir: Path,
    version: int,
    max_seq_length: int | None = None,
    precision: str = "float32",
) -> Path:
    """Writes and checks `<output_dir>/<version>`; returns that directory.

    Texts are cut to `max_seq_length` tokens (None: all positions that the model has). With `precision` bfloat16 the
    graph computes in bfloat16; answers are float32. `signatures.ServedModel` says what it answers.
    """
    require_writable(output_dir, flag="--output_dir")
    target = output_dir / str(version)
    if target.exists():
        raise UserError(f"{target} exists; a served version is never changed: choose another --version")
    positions = checkpoint.config.max_position_embeddings
    length = max_seq_length or positions
    if length > positions:
        raise UserError(f"--max_seq_length may not exceed the model's {positions} positions; received {length}")
    tokenizer = checkpoint.load_tokenizer()
    labels = checkpoint.labels or [str(index) for index in range(checkpoint.num_labels or 0)]
    with tf.device("/CPU:0"):  # where the check computes too
        model = build_model(checkpoint, dtype=dtype_policy(precision))
    served = ServedModel(model, tokenizer, max_seq_length=length, labels=labels)
    signatures = served.signatures()
    with whole_directory(target) as temporary:
        tf.saved_model.save(served, str(temporary), signatures=signatures)
        write_serving_files(temporary, version=version)
        with tf.device("/CPU:0"):
            write_warmup_records(temporary, signatures, tokenizer=tokenizer, max_seq_length=length)
        tokenizer.save(temporary / "assets")
        checkpoint.config.save(temporary / "assets" / CONFIG_FILE)
        if labels:
            (temporary / LABELS_FILE).write_text("\n".join(labels) + "\n", encoding="utf-8")
        facts = {"model_version": version, "max_seq_length": length, "precision": precision}
        write_json(
            temporary / EXPORT_MANIFEST_FILE, _manifest(checkpoint, tokenizer, **facts, signatures=sorted(signatures))
        )
        check_saved_model(temporary, precision=precision)
    logging.info("Exported %s to %s", checkpoint.path, target)
    return target


def _manifest(checkpoint: Checkpoint, tokenizer: Tokenizer, **facts: Any) -> dict[str, Any]:
    return {
        **facts,
        "checkpoint": Path(checkpoint.path).name,
        "heads": checkpoint.heads,
        **_fingerprints(checkpoint, tokenizer),
        "albert_tf_version": __version__,
        "tensorflow_version": tf.__version__,
    }


def _fingerprints(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, str]:
    """Returns SHA-256 sums of the weights with their names and shapes, and of the tokenizer."""
    weights = weights_fingerprint((name, checkpoint.read(name)) for name in sorted(checkpoint.shapes))
    return {"weights_fingerprint": weights, "tokenizer_fingerprint": tokenizer.fingerprint}


def is_export_of(directory: Path, checkpoint: Checkpoint) -> bool:
    """Returns whether an export has the weights and the tokenizer of a checkpoint; raises UserError if it is none."""
    manifest = read_export_manifest(directory)
    expected = _fingerprints(checkpoint, checkpoint.load_tokenizer())
    return all(manifest.get(name) == value for name, value in expected.items())


def check_export(directory: Path) -> CheckReport:
    """Checks an export, the version's directory or the one above, as it was checked when it was made."""
    directory = version_directory(directory)
    return check_saved_model(directory, precision=read_export_manifest(directory)["precision"])
