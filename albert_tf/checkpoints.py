"""Variables and native checkpoints; variables are known by the original's TF1 names.

The directory of a run is self-contained: beside the checkpoints stand `albert_config.json` and the tokenizer.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from albert_tf.files import whole_file
from albert_tf.heads import AlbertWithHeads
from albert_tf.sharing import BlockIndex
from albert_tf.tensor_files import SLOT_SUFFIXES, NamedArrays, native_key, write_tensorflow
from albert_tf.weight_maps import weight_names

CONFIG_FILE = "albert_config.json"
CHECKPOINT_NAME = "model.ckpt"

_INDEXED = re.compile(r"(\w+)\((\d+),(\d+)\)")


def named_variables(model: AlbertWithHeads) -> dict[str, tf.Variable]:
    """Returns the model's variables by TF1 name, in the order of the table; each variable exactly once."""
    names = weight_names(model.config, model.head_names, num_labels=model.num_labels, pooler=model.has_pooler)
    named = {name.tf1_name: _resolve(model, name.path).value for name in names}
    if len(named) != len(model.trainable_variables):
        raise RuntimeError(f"the table names {len(named)} variables, the model has {len(model.trainable_variables)}")
    return named


def _resolve(root: Any, path: str) -> Any:
    for part in path.split("."):
        indexed = _INDEXED.fullmatch(part)
        root = (
            getattr(root, indexed[1])(BlockIndex(int(indexed[2]), int(indexed[3]))) if indexed else getattr(root, part)
        )
    return root


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
