"""Checkpoints as other programs write them, written without the code under test."""

import json
import shutil

import numpy as np
import safetensors.numpy
import tensorflow as tf
from conftest import GOLDEN


def read_tf1(directory):
    """Returns the tensors of a golden TF1 checkpoint by name."""
    reader = tf.train.load_checkpoint(str(GOLDEN / directory / "model.ckpt-best"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write_tf1(directory, tensors, *, name="model.ckpt-best", config_of="tf1_checkpoint/plain", config=None):
    """Writes a TF1 checkpoint and its albert_config.json; `config` changes keys of that of a golden directory."""
    directory.mkdir(parents=True, exist_ok=True)
    values = json.loads((GOLDEN / config_of / "albert_config.json").read_text())
    (directory / "albert_config.json").write_text(json.dumps({**values, **(config or {})}))
    tf.raw_ops.SaveV2(
        prefix=str(directory / name),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return directory


def read_safetensors(directory):
    """Returns the tensors of a golden Hugging Face directory, or of another one, by name."""
    return safetensors.numpy.load_file(GOLDEN / directory / "model.safetensors")


def write_safetensors(directory, tensors, *, config_of="hf/pretraining", config=None):
    """Writes a Hugging Face directory; `config` changes keys of that of a golden directory, None removes one."""
    directory.mkdir(parents=True, exist_ok=True)
    values = {**json.loads((GOLDEN / config_of / "config.json").read_text()), **(config or {})}
    kept = {key: value for key, value in values.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(kept))
    arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    safetensors.numpy.save_file(arrays, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def copy_golden(case, directory):
    """Copies a golden directory's checkpoint and configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in (GOLDEN / case).iterdir():
        if file.suffix != ".npz":
            shutil.copy(file, directory)
    return directory
