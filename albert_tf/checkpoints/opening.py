"""Opening a checkpoint of any format: our own, TF1's (google-research/albert), or Hugging Face's; and models from it.

Names, shapes and values are always TF1's. Nothing is loaded silently in part: what a model needs and the checkpoint
lacks, and what the checkpoint has and nothing uses, is an error that lists names.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import OUTPUT_WEIGHTS, WeightName, weight_names
from albert_tf.checkpoints.discovery import HUGGING_FACE, NATIVE, Found, find_checkpoint
from albert_tf.checkpoints.native import RUN_CONFIG_FILE
from albert_tf.errors import UserError
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.text.tokenizer_files import TOKENIZER_DIRECTORY, Tokenizer, holds_tokenizer, load_tokenizer

# What every checkpoint may hold beside weights: step, optimizer slots, TensorFlow's own entries, buffers of positions.
_INERT = re.compile(
    r"(global_step|save_counter|_CHECKPOINTABLE_OBJECT_GRAPH|beta[12]_power)"
    r"|.*/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1)"
    r"|(albert\.)?embeddings\.(position_ids|token_type_ids)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Found):
    """A checkpoint that was opened: what it is, and its weights by TF1 name, read one at a time.

    `names` are the weights that it has; `missing` those that its heads need and it lacks, and `unused` the tensors that
    nothing knows: both are empty unless the caller allowed them.
    """

    num_labels: int | None
    has_pooler: bool
    names: tuple[WeightName, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every weight by TF1 name."""
        return {name.tf1_name: name.shape for name in self.names}

    def read(self, tf1_name: str) -> np.ndarray:
        """Returns one weight as float32 in TF1's orientation; raises UserError where the file is damaged."""
        name = next(name for name in self.names if name.tf1_name == tf1_name)
        value = self.tensors.read(self.stored[tf1_name])
        if value.dtype != np.float32:
            raise UserError(
                f"{self.path}: {self.stored[tf1_name]} is {value.dtype}; weights are floating-point numbers"
            )
        transposed = self.format == HUGGING_FACE and name.transposed
        return np.ascontiguousarray(value.T) if transposed else value

    @property
    def tokenizer_directory(self) -> Path | None:
        """The directory of the tokenizer that stands beside the weights, if there is one."""
        places = [place for directory in self.directories for place in (directory / TOKENIZER_DIRECTORY, directory)]
        return next((place for place in places if holds_tokenizer(place)), None)

    def require_same_computation(self, config: AlbertConfig) -> None:
        """Raises UserError unless `config` uses the weights as this checkpoint's configuration does.

        Depth, dropout and initialisation may differ; shapes are compared where weights are assigned.
        """
        for key in ("num_attention_heads", "hidden_act"):
            mine, asked = getattr(self.config, key), getattr(config, key)
            if mine != asked:
                raise UserError(f"{self.path} has {key}={mine!r}, and the configuration asks for {asked!r}")

    def load_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer that stands beside the weights; raises UserError where there is none that fits."""
        if self.tokenizer_directory is None:
            raise UserError(
                f"{self.path} has no tokenizer beside it: no spiece.model, vocab.txt or {TOKENIZER_DIRECTORY}/"
            )
        tokenizer = load_tokenizer(self.tokenizer_directory)
        pieces, rows = tokenizer.vocab_size, self.config.vocab_size
        sizes = f"{self.path}: the tokenizer has {pieces} pieces and the model {'only ' if rows < pieces else ''}{rows}"
        is_run = self.format == NATIVE and (Path(self.path).parent / RUN_CONFIG_FILE).exists()
        if pieces > rows or (is_run and pieces != rows):
            raise UserError(f"{sizes}; they belong to different models")
        if pieces < rows:
            logging.warning("%s; unless the model was made so, its answers are noise", sizes)
        return tokenizer


def open_checkpoint(
    path: str | Path,
    *,
    source_format: str | None = None,
    label_head: str | None = None,
    allow_missing: str | None = None,
) -> Checkpoint:
    """Opens a run's directory, a TF1 checkpoint or a Hugging Face directory, or a file prefix or file in one.

    Reads configuration, names and shapes; no weights. The format is detected unless `source_format` gives it. TF1 does
    not say which head `output_weights` belongs to: sequence_classification unless `label_head` gives another. Names
    that match the regular expression `allow_missing` may be missing or unused; other such names raise UserError.
    """
    try:
        allowed = re.compile(r"(?!)" if allow_missing is None else allow_missing)  # (?!) matches nothing
    except re.error as error:
        raise UserError(f"--allow_missing must be a regular expression; received {allow_missing!r}: {error}") from None
    return _match(find_checkpoint(str(path), source_format=source_format, label_head=label_head), allowed)


def _match(found: Found, allowed: re.Pattern[str]) -> Checkpoint:
    """Compares what the files have with what the model of their configuration and heads needs."""
    stored, shapes = found.stored, found.tensors.shapes
    num_labels = shapes[stored[OUTPUT_WEIGHTS]][0] if OUTPUT_WEIGHTS in stored else None
    if found.labels is not None and num_labels is not None and len(found.labels) != num_labels:
        raise UserError(
            f"{found.path}: the configuration names {len(found.labels)} labels, and the head has {num_labels} outputs"
        )
    has_pooler = any(name.startswith("bert/pooler/") for name in stored)
    table = weight_names(found.config, found.heads, num_labels=num_labels, pooler=has_pooler)
    present = tuple(name for name in table if name.tf1_name in stored)
    for name in present:
        shape = shapes[stored[name.tf1_name]]
        expected = name.shape[::-1] if found.format == HUGGING_FACE and name.transposed else name.shape
        if shape != expected:
            raise UserError(
                f"{found.path}: {stored[name.tf1_name]} has shape {list(shape)}, and the configuration asks for "
                f"{list(expected)}; weights and configuration belong to different models"
            )
    missing = [name for name in table if name.tf1_name not in stored]
    names_there = [(found.format == HUGGING_FACE and name.hf_name) or name.tf1_name for name in missing]
    known = {name.tf1_name for name in present}
    others = {name: key for name, key in stored.items() if name not in known}
    unused = [key for name, key in others.items() if not _INERT.fullmatch(name)]
    for kind, listed in (("lacks", names_there), ("has, and nothing uses,", unused)):
        refused = [name for name in listed if not allowed.search(name)]
        if refused:
            raise UserError(
                f"{found.path} {kind} {_enumerate(refused)} ({len(present)} of {len(table)} weights were found); if "
                "that is meant, let these names pass by a regular expression in --allow_missing"
            )
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    inert = (*found.inert, *(name for name, key in others.items() if key not in unused))
    return Checkpoint(
        **{**fields, "inert": inert},
        num_labels=num_labels,
        has_pooler=has_pooler,
        names=present,
        missing=tuple(names_there),
        unused=tuple(unused),
    )


def _enumerate(names: Sequence[str]) -> str:
    listed = ", ".join(names[:10])
    return listed if len(names) <= 10 else f"{listed} and {len(names) - 10} more"


def weights_fingerprint(weights: Iterable[tuple[str, np.ndarray]]) -> str:
    """Returns the SHA-256 of weights with their names and shapes; `weights` are in the order of their names."""
    digest = hashlib.sha256()
    for name, value in weights:
        digest.update(f"{name} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def require_weights(checkpoint: Checkpoint, needed: Mapping[str, tuple[int, ...]]) -> None:
    """Raises UserError unless the checkpoint has weights of the names and shapes that a model needs."""
    shapes = checkpoint.shapes
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise UserError(
            f"{checkpoint.path} lacks {len(missing)} of the model's {len(needed)} variables: {_enumerate(missing)}; "
            "nothing was loaded"
        )
    for name, shape in needed.items():
        if shape != shapes[name]:
            raise UserError(
                f"{checkpoint.path}: {name} has shape {list(shapes[name])}, the configuration asks for "
                f"{list(shape)}; nothing was loaded"
            )


def assign_weights(variables: Mapping[str, tf.Variable], checkpoint: Checkpoint) -> None:
    """Assigns every variable, by TF1 name; missing names and other shapes raise UserError, extra names are logged."""
    shapes = checkpoint.shapes
    require_weights(checkpoint, {name: tuple(variable.shape) for name, variable in variables.items()})
    for name, variable in variables.items():
        variable.assign(checkpoint.read(name))
    unexpected = [name for name in shapes if name not in variables]
    logging.info("Loaded %d variables from %s; %d in it are not used%s", len(variables), checkpoint.path,
                 len(unexpected), f": {_enumerate(unexpected)}" if unexpected else "")  # fmt: skip


def build_model(checkpoint: Checkpoint, **kwargs: Any) -> AlbertWithHeads:
    """Returns the Keras model of an opened checkpoint with its heads; `kwargs` are the model's, as `dtype`."""
    model = AlbertWithHeads(
        checkpoint.config,
        heads=checkpoint.heads,
        num_labels=checkpoint.num_labels,
        pooler=checkpoint.has_pooler,
        **kwargs,
    )
    assign_weights(named_variables(model), checkpoint)
    return model


def load_model(path: str | Path, *, label_head: str | None = None, **kwargs: Any) -> AlbertWithHeads:
    """Returns the Keras model with the heads of a checkpoint of any format; arguments as in `build_model`."""
    return build_model(open_checkpoint(path, label_head=label_head), **kwargs)


def load_encoder(path: str | Path, **kwargs: Any) -> AlbertEncoder:
    """Returns the Keras layer of a checkpoint of any format, without its heads; `kwargs` are the layer's."""
    return build_model(dataclasses.replace(open_checkpoint(path), heads=()), **kwargs).encoder
