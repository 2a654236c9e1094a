"""The SavedModel: a model that TensorFlow Serving runs on plain text, checked as TensorFlow Serving loads it.

The graph holds plain operations, weights and the tokenizer; no optimizer, no Keras object. It is written under a
temporary name, checked in a fresh process, and only then renamed.
"""

from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import CONFIG_FILE
from albert_tf.distribution import dtype_policy
from albert_tf.errors import UserError
from albert_tf.export_assets import write_serving_files, write_warmup_records
from albert_tf.export_check import CheckReport, check_saved_model
from albert_tf.files import read_json, require_writable, whole_directory, write_json
from albert_tf.loading import Checkpoint, build_model, weights_fingerprint
from albert_tf.signatures import ServedModel
from albert_tf.tokenizer import Tokenizer
from albert_tf.version import __version__

MANIFEST_FILE = "assets/export_manifest.json"
LABELS_FILE = "assets/labels.txt"


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
        write_json(temporary / MANIFEST_FILE, _manifest(checkpoint, tokenizer, **facts, signatures=sorted(signatures)))
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
    manifest = read_manifest(directory)
    expected = _fingerprints(checkpoint, checkpoint.load_tokenizer())
    return all(manifest.get(name) == value for name, value in expected.items())


def read_manifest(directory: Path) -> dict[str, Any]:
    """Returns the manifest of an export, the version's directory; raises UserError where there is none."""
    if not (directory / MANIFEST_FILE).exists():
        raise UserError(
            f"{directory} is no export of this project, or not all of one: it has no {MANIFEST_FILE}; make one with "
            "python -m albert_tf.export_saved_model"
        )
    return read_json(directory / MANIFEST_FILE, what="export manifest")


def version_directory(directory: Path) -> Path:
    """Returns the export that --saved_model_dir names: the directory, or the highest of its numbered versions."""
    if (directory / "saved_model.pb").exists():
        return directory
    versions = [path for path in directory.glob("*") if path.name.isdecimal() and (path / "saved_model.pb").exists()]
    if not versions:
        raise UserError(f"--saved_model_dir={directory} is not an export and holds none (there is no saved_model.pb)")
    return max(versions, key=lambda path: int(path.name))


def check_export(directory: Path) -> CheckReport:
    """Checks an export, the version's directory or the one above, as it was checked when it was made."""
    directory = version_directory(directory)
    return check_saved_model(directory, precision=read_manifest(directory)["precision"])
