"""Checkpoints: save, keep N, resume, and warm start; variables are stored under the original's TF1 names.

A run's directory is self-contained: beside the checkpoints stand `albert_config.json`, the tokenizer, the resolved run
configuration and an environment fingerprint. TensorFlow writes a checkpoint under temporary names and points the
`checkpoint` file at it last, so that an interrupted save leaves the one before in force.
"""

import itertools
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.files import read_json, write_json
from albert_tf.heads import AlbertWithHeads
from albert_tf.optimizers import AlbertOptimizer
from albert_tf.sharing import BlockIndex
from albert_tf.tensor_files import SLOT_SUFFIXES, NamedArrays, native_key, write_tensorflow
from albert_tf.tokenizer import TOKENIZER_DIRECTORY, Tokenizer, load_tokenizer
from albert_tf.version import __version__
from albert_tf.weight_maps import weight_names

CONFIG_FILE = "albert_config.json"
RUN_CONFIG_FILE = "run_config.json"
ENVIRONMENT_FILE = "environment.json"
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


class RunCheckpoints:
    """The checkpoints of one training run, in its output directory."""

    def __init__(
        self,
        directory: Path,
        *,
        variables: Mapping[str, tf.Variable],
        optimizer: AlbertOptimizer,
        global_step: tf.Variable,
        keep: int,
    ) -> None:
        self._directory = directory
        self._global_step = global_step
        self._checkpoint = tf.train.Checkpoint(
            weights=dict(variables), slots=dict(optimizer.slots), global_step=global_step
        )
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, str(directory), max_to_keep=keep, checkpoint_name=CHECKPOINT_NAME
        )

    def save(self) -> None:
        """Saves weights, slots and step as `model.ckpt-<step>`, unless that step is saved already."""
        step = int(self._global_step.numpy())
        path = self._directory / f"{CHECKPOINT_NAME}-{step}"
        if self._manager.latest_checkpoint == str(path):
            return
        try:
            self._manager.save(checkpoint_number=step)
        except tf.errors.OpError as error:
            reason = error.message.split("}} ")[-1]
            raise UserError(
                f"{path} could not be written ({reason}); is the disk full? The checkpoint before it is in force"
            ) from None

    def restore_latest(self) -> bool:
        """Restores the newest checkpoint, all of it; returns whether there is one."""
        latest = self._manager.latest_checkpoint
        if latest is None:
            if list(self._directory.glob(f"{CHECKPOINT_NAME}-*.index")):
                raise UserError(
                    f"{self._directory} has checkpoints, but its file 'checkpoint', which says which is the newest, is "
                    "missing or damaged; restore it, or choose another --output_dir"
                )
            return False
        try:
            self._checkpoint.restore(latest).assert_consumed()
        except (AssertionError, ValueError) as error:
            raise UserError(
                f"{latest} does not fit this model ({str(error).splitlines()[0]}); choose another --output_dir"
            ) from None
        except tf.errors.OpError as error:
            raise UserError(
                f"{latest} is damaged ({error.message}); delete its files, and its line in {self._directory}/checkpoint"
            ) from None
        return True


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
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=1, checkpoint_name=CHECKPOINT_NAME)
    prefix = manager.save(checkpoint_number=step)
    reader = tf.train.load_checkpoint(prefix)
    own = {native_key(name) for name in names}
    beside = [(key, reader.get_tensor(key)) for key in reader.get_variable_to_shape_map() if key not in own]
    write_tensorflow(prefix, itertools.chain(beside, ((native_key(name), value) for name, value in tensors)))


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


def write_run_files(
    directory: Path, *, config: AlbertConfig, run_config: dict[str, Any], tokenizer: Tokenizer | None
) -> None:
    """Writes what makes a run's directory self-contained.

    Where it has a checkpoint, the run is continued with its own settings: another model, tokenizer or value in
    `run_config` raises UserError.
    """
    started = tf.train.latest_checkpoint(str(directory)) is not None
    files = {CONFIG_FILE: config.to_dict(), RUN_CONFIG_FILE: run_config}
    if started:
        for name, values in files.items():
            _check_unchanged(directory / name, values)
    for name, values in files.items():
        write_json(directory / name, values)
    if tokenizer is not None:
        saved = directory / TOKENIZER_DIRECTORY
        if started and saved.exists() and load_tokenizer(saved).fingerprint != tokenizer.fingerprint:
            raise UserError(f"{directory} was started with another tokenizer; choose another --output_dir")
        tokenizer.save(saved)
    write_json(directory / ENVIRONMENT_FILE, _environment())


def _check_unchanged(path: Path, values: dict[str, Any]) -> None:
    recorded = read_json(path, what="record of the run")
    different = [key for key in {**recorded, **values} if recorded.get(key) != values.get(key)]
    if different:
        key = different[0]
        raise UserError(
            f"{path.parent} was started with {key}={recorded.get(key)!r} and is now asked for {values.get(key)!r}; "
            "a run is continued with its own settings: choose another --output_dir, or restore the setting"
        )


def _environment() -> dict[str, Any]:
    """Returns the versions that a bit-exact continuation depends on."""
    return {
        "albert_tf": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "devices": [device.device_type for device in tf.config.list_logical_devices()],
    }
