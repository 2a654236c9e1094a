"""What stands beside a run's checkpoints: the model's shape, the tokenizer, the settings, and where it was computed."""

import os
import platform
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.architecture.config import AlbertConfig
from albert_tf.checkpoints.native import CONFIG_FILE, RUN_CONFIG_FILE
from albert_tf.errors import UserError
from albert_tf.files import differing_keys, read_json, write_json
from albert_tf.text.tokenizer_files import TOKENIZER_DIRECTORY, Tokenizer, load_tokenizer
from albert_tf.training.kept_checkpoints import saved_steps
from albert_tf.version import __version__

ENVIRONMENT_FILE = "environment.json"


def check_same_run(
    directory: Path, *, config: AlbertConfig, run_config: dict[str, Any] | None, tokenizer: Tokenizer | None
) -> None:
    """Raises UserError where `directory` has a checkpoint of a run with another model, setting or tokenizer.

    `run_config` None: the run is evaluated, whatever the settings of its training.
    """
    if not saved_steps(directory):
        return
    asked = {CONFIG_FILE: config.to_dict()} | ({} if run_config is None else {RUN_CONFIG_FILE: run_config})
    for name, values in asked.items():
        recorded = read_json(directory / name, what="record of the run")
        different = differing_keys(recorded, values)
        if different:
            key = different[0]
            raise UserError(
                f"{directory} was started with {key}={recorded.get(key)!r} and is now asked for {values.get(key)!r}; "
                "a run keeps its settings: choose another --output_dir, or restore the setting"
            )
    saved = directory / TOKENIZER_DIRECTORY
    if tokenizer and saved.exists() and load_tokenizer(saved).fingerprint != tokenizer.fingerprint:
        raise UserError(f"{directory} was started with a different tokenizer; choose another --output_dir")


def write_run_files(
    directory: Path, *, config: AlbertConfig, run_config: dict[str, Any], tokenizer: Tokenizer | None
) -> None:
    """Writes what makes the directory of a run that begins self-contained."""
    write_json(directory / CONFIG_FILE, config.to_dict())
    write_json(directory / RUN_CONFIG_FILE, run_config)
    if tokenizer is not None:
        tokenizer.save(directory / TOKENIZER_DIRECTORY)


def recorded_run_config(directory: Path) -> dict[str, Any] | None:
    """Returns the settings of the run in `directory`, or None where there is no checkpoint of one."""
    if not saved_steps(directory):
        return None
    path = directory / RUN_CONFIG_FILE
    if not path.exists():
        raise UserError(
            f"{directory} holds a converted checkpoint, not a run (it has no {RUN_CONFIG_FILE}): pass it as "
            "--init_checkpoint, and choose another --output_dir"
        )
    return read_json(path, what="record of the run")


def note_environment(
    directory: Path, *, step: int, strategy: tf.distribute.Strategy, computation: dict[str, Any]
) -> None:
    """Records where and how the run is computed from `step` on; says so where that ends bit-exact repeatability.

    `computation` holds the settings that change rounding, and nothing else.

    `environment.json` lists the environments with the first step of each.
    """
    path = directory / ENVIRONMENT_FILE
    recorded = read_json(path, what="record of the run's environments") if step and path.exists() else []
    recorded = [entry for entry in recorded if entry["from_step"] < step]
    now = {**_environment(strategy), **computation}
    if recorded:
        before = {key: value for key, value in recorded[-1].items() if key != "from_step"}
        different = differing_keys(before, now)
        if not different:
            return
        changes = "; ".join(f"{key}: {before.get(key)} before, {now.get(key)} now" for key in different)
        logging.warning("From step %d on this run is not bit for bit what it would have been (%s); "
                        "the data and their order are", step, changes)  # fmt: skip
    write_json(path, [*recorded, {"from_step": step, **now}])


def _environment(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns what the bits of a result depend on, beside the settings."""
    return {
        "albert_tf": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "processor": _processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": [
            tf.config.threading.get_intra_op_parallelism_threads(),
            tf.config.threading.get_inter_op_parallelism_threads(),
        ],
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""),
        "devices": sorted({device.device_type for device in tf.config.list_logical_devices()}),
        "replicas": strategy.num_replicas_in_sync,
    }


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
