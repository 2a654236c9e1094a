"""Native checkpoints: their names, and how they are written; variables are known by the original's TF1 names.

The directory of a run is self-contained: beside the checkpoints stand `albert_config.json` and the tokenizer.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from albert_tf.checkpoints.tensor_files import SLOT_SUFFIXES, NamedArrays, native_key, write_tensorflow
from albert_tf.files import whole_file

CONFIG_FILE = "albert_config.json"
CHECKPOINT_NAME = "model.ckpt"


def write_checkpoint(directory: Path, names: Sequence[str], *, tensors: NamedArrays, step: int) -> None:
    """Writes `model.ckpt-<step>` as `RunCheckpoints` does, one tensor at a time.

    `tensors` are weights, and perhaps slots and `global_step`, by TF1 name; `names` are their names.
    """
    placeholders = {name: tf.Variable(0.0) for name in names if name != "global_step"}
    slots = {name: variable for name, variable in placeholders.items() if name.endswith(SLOT_SUFFIXES)}
    weights = {name: variable for name, variable in placeholders.items() if name not in slots}
    checkpoint = tf.train.Checkpoint(weights=weights, slots=slots)
    if "global_step" in names:
        checkpoint.global_step = tf.Variable(step, dtype=tf.int64)
    # TensorFlow writes what it stores beside the values, for placeholders; then the values take their places.
    prefix = checkpoint.write(str(directory / f"{CHECKPOINT_NAME}-{step}"))
    reader = tf.train.load_checkpoint(prefix)
    own = {native_key(name) for name in names}
    beside = [(key, reader.get_tensor(key)) for key in reader.get_variable_to_shape_map() if key not in own]
    write_tensorflow(prefix, itertools.chain(beside, ((native_key(name), value) for name, value in tensors)))
    point_to(directory, [Path(prefix).name])


def point_to(directory: Path, names: Sequence[str]) -> None:
    """Writes TensorFlow's file `checkpoint`: the names of the checkpoints in `directory`, the newest last."""
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    with whole_file(directory / "checkpoint") as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


RUN_CONFIG_FILE = "run_config.json"
