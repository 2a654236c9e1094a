"""Reading checkpoints and warm start; variables are known by the original's TF1 names.

The directory of a run is self-contained: beside the checkpoints stand `albert_config.json` and the tokenizer.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.errors import UserError
from albert_tf.files import whole_file
from albert_tf.heads import AlbertWithHeads
from albert_tf.sharing import BlockIndex
from albert_tf.tensor_files import SLOT_SUFFIXES, NamedArrays, native_key, write_tensorflow
from albert_tf.weight_maps import weight_names

CONFIG_FILE = "albert_config.json"
CHECKPOINT_NAME = "model.ckpt"

_VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
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


def write_checkpoint(directory: Path, names: Sequence[str], tensors: NamedArrays, *, step: int) -> None:
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


def checkpoint_prefix(path: str) -> str:
    """Returns the prefix that a prefix, an `.index` file or a directory names; raises UserError where there is none."""
    if not path:
        raise UserError("the checkpoint's path is empty")
    candidate = Path(path)
    if candidate.is_dir():
        latest = tf.train.latest_checkpoint(path)
        if latest:
            return latest
        prefixes = sorted(str(file)[: -len(".index")] for file in candidate.glob("*.index"))
        if len(prefixes) == 1:
            return prefixes[0]
        found = f"it holds {len(prefixes)} of them; name one" if prefixes else "there is no *.index file in it"
        raise UserError(f"checkpoint directory {path!r} does not say which checkpoint to use: {found}")
    prefix = path.removesuffix(".index")
    if not Path(prefix + ".index").exists():
        raise UserError(f"checkpoint {path!r} does not exist (there is no {prefix + '.index'!r})")
    return prefix


def read_weights(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of a native or TF1 checkpoint by TF1 name; optimizer slots and the step are left out."""
    prefix = checkpoint_prefix(path)
    try:
        reader = tf.train.load_checkpoint(prefix)
        keys = reader.get_variable_to_shape_map()
        native = {_native_name(key): key for key in keys if key.startswith("weights/")}
        names = native or {key: key for key in keys if key != "global_step" and not key.endswith(SLOT_SUFFIXES)}
        return {name: reader.get_tensor(key) for name, key in names.items()}
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UserError(f"checkpoint {prefix!r} cannot be read: {error}") from None


def _native_name(key: str) -> str:
    """Undoes tf.train.Checkpoint's escaping of a dictionary key."""
    escaped = key.removeprefix("weights/").removesuffix(_VALUE_SUFFIX)
    return escaped.replace(".S", "/").replace("..", ".")


def assign_weights(variables: Mapping[str, tf.Variable], weights: Mapping[str, np.ndarray], *, source: str) -> None:
    """Assigns every variable from `weights`; missing names and other shapes raise UserError, extra names are logged."""
    missing = [name for name in variables if name not in weights]
    if missing:
        raise UserError(
            f"{source} lacks {len(missing)} of the model's {len(variables)} variables, among them {missing[0]}; "
            "nothing was loaded. Does it belong to this configuration?"
        )
    for name, variable in variables.items():
        if tuple(variable.shape) != weights[name].shape:
            raise UserError(
                f"{source}: {name} has shape {list(weights[name].shape)}, the configuration asks for "
                f"{list(variable.shape)}; nothing was loaded"
            )
    for name, variable in variables.items():
        variable.assign(weights[name])
    unexpected = sorted(set(weights) - set(variables))
    logging.info("Loaded %d variables from %s; %d in it are not used%s", len(variables), source, len(unexpected),
                 f": {', '.join(unexpected[:5])}" if unexpected else "")  # fmt: skip
