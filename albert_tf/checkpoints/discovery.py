"""Checkpoints as they are found: our own, TF1's (google-research/albert) and Hugging Face's, described by TF1 names.

What a directory holds is described here; whether that is all of a model, `albert_tf.checkpoints.opening` decides.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import (
    ARCHITECTURES,
    HEADS,
    LABEL_HEADS,
    MULTIPLE_CHOICE,
    SEQUENCE_CLASSIFICATION,
    heads_of,
    weight_names,
)
from albert_tf.checkpoints import tensor_files
from albert_tf.checkpoints.native import CONFIG_FILE
from albert_tf.errors import UserError
from albert_tf.files import read_json
from albert_tf.settings.conversion import CHECKPOINT_FORMATS

NATIVE, TF1, HUGGING_FACE = CHECKPOINT_FORMATS
HUGGING_FACE_CONFIG_FILE = "config.json"
LABEL_HEAD_FILE = "label_head.json"  # {"head": which label head `output_weights` is, "labels": their names or null}

_SLOT = re.compile(r"(.*)/(?:adam|lamb)_([mv])")

# Layouts that are known and cannot be represented, by a name that occurs in them.
_REFUSED_LAYOUTS = (
    (r"layer_shared/|embeddings/word_embeddings_2$",
     "in albert_zh's own layout (`layer_shared`), which projects the word embeddings before it adds positions and "
     "normalises at the hidden width; use an albert_*_zh_google checkpoint"),
    (r"layer_normalization|group_\d+_\d+/layer_\d+",
     "an ALBERT whose LayerNorms are not shared (each layer has `layer_normalization_N`), which no format here has"),
    (r"bert[./]encoder[./]layer[._]\d",
     "a BERT, in which each layer has weights of its own and embeddings are as wide as the hidden layers"),
    (r"/\.ATTRIBUTES/VARIABLE_VALUE$", "an object-based TensorFlow 2 checkpoint of another program"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What stands at a path. `stored` is the name in the files of each tensor by its TF1 name.

    Slots are `<weight>/adam_m` and `<weight>/adam_v`; tensors that TF1 has no name for keep theirs. `inert` are tensors
    that repeat others or hold no information.
    """

    path: str
    format: str
    config: AlbertConfig
    heads: tuple[str, ...]
    labels: tuple[str, ...] | None
    stored: Mapping[str, str]
    inert: tuple[str, ...]
    tensors: tensor_files.Tensors

    @property
    def directories(self) -> list[Path]:
        """The directories in which what belongs to the weights may stand."""
        return _places(self.path)


def find_checkpoint(path: str, *, source_format: str | None = None, label_head: str | None = None) -> Found:
    """Describes the checkpoint at `path`; format and label head are what the files say unless they are given."""
    if label_head not in (None, *LABEL_HEADS):
        raise UserError(f"the label head must be one of {', '.join(LABEL_HEADS)}; received {label_head!r}")
    if (source_format or _detect_format(path)) == HUGGING_FACE:
        return _find_hugging_face(path, label_head)
    return _find_tensorflow(path, label_head, wanted=source_format)


def _detect_format(path: str) -> str:
    """Returns the format of `path`; TF1 stands for native too, which the names in the file tell apart."""
    if not path:
        raise UserError("the checkpoint's path is empty")
    place = Path(path)
    if not place.exists():
        if tensor_files.find_tensorflow_prefix(path) is None:
            raise UserError(f"checkpoint {path!r} does not exist (there is no {path + '.index'!r} either)")
        return TF1
    inside = place.iterdir() if place.is_dir() else [place]
    suffixes = {file.suffix for file in inside}
    if ".safetensors" in suffixes and ".index" in suffixes:
        raise UserError(f"{path} holds checkpoints of TensorFlow and of Hugging Face; name one of its files")
    if ".safetensors" in suffixes:
        return HUGGING_FACE
    if tensor_files.find_tensorflow_prefix(path) is not None:
        return TF1
    raise tensor_files.refusal_of(place)


def _find_tensorflow(path: str, label_head: str | None, *, wanted: str | None) -> Found:
    prefix = tensor_files.find_tensorflow_prefix(path)
    if prefix is None:
        raise UserError(f"{path} is not a TensorFlow checkpoint: there is no *.index file")
    tensors = tensor_files.TensorFlowTensors(prefix)
    native = {key: tensor_files.native_name(key) for key in tensors.shapes}
    is_native = any(key.startswith("weights/") and name for key, name in native.items())
    if wanted == NATIVE and not is_native:
        raise UserError(f"{prefix} is not a checkpoint of this project; its format is {TF1}")
    canonical: dict[str, str] = {key: key for key in tensors.shapes}
    if is_native:  # whatever else a run stores beside weights is its own affair
        kept = [key for key in tensors.shapes if key.startswith(("weights/", "slots/", "global_step/"))]
        canonical = {native[key] or key: key for key in kept}
    stored = {_SLOT.sub(r"\1/adam_\2", name.removeprefix("module/")): key for name, key in canonical.items()}
    _refuse_layouts(prefix, canonical)
    recorded = _read_label_head(Path(prefix).parent)
    return Found(
        path=prefix,
        format=NATIVE if is_native else TF1,
        config=AlbertConfig.load(_tensorflow_config_file(prefix)),
        heads=heads_of(stored, label_head=label_head or recorded["head"]),
        labels=recorded["labels"] and tuple(recorded["labels"]),
        stored=stored,
        inert=(),
        tensors=tensors,
    )


def _find_hugging_face(path: str, label_head: str | None) -> Found:
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    tensors = tensor_files.SafetensorsTensors(tensor_files.safetensors_files(Path(path)))
    _refuse_layouts(path, tensors.shapes)
    config = AlbertConfig.load(directory / HUGGING_FACE_CONFIG_FILE)
    config.to_hugging_face()  # refuses what Hugging Face would compute differently
    tf1_names = {name.hf_name: name.tf1_name for name in weight_names(config, HEADS) if name.hf_name}
    stored = {}
    for key in tensors.shapes:
        full = key if key in tf1_names else f"albert.{key}"  # AlbertModel alone is saved without its prefix
        stored[tf1_names.get(full, key)] = key
    inert = _tied_to_others(path, tensors, stored) + _identity_projection(path, tensors, config)
    stored = {name: key for name, key in stored.items() if key not in inert}
    architecture = ARCHITECTURES.get((config.hugging_face.get("architectures") or [""])[0])
    named = architecture.heads if architecture else ()
    named_label_head = next((head for head in named if head in LABEL_HEADS), SEQUENCE_CLASSIFICATION)
    found = heads_of(stored, label_head=label_head or named_label_head)
    if label_head:
        named = tuple(head for head in named if head not in LABEL_HEADS)
    return Found(
        path=path,
        format=HUGGING_FACE,
        config=config,
        heads=tuple(head for head in HEADS if head in found or head in named),
        labels=None if MULTIPLE_CHOICE in found else _label_names(config.hugging_face),
        stored=stored,
        inert=tuple(inert),
        tensors=tensors,
    )


def _tied_to_others(path: str, tensors: tensor_files.Tensors, stored: dict[str, str]) -> list[str]:
    """Returns the tensors that repeat a tied one, as older files do; a repetition that differs raises UserError.

    Where only the repetition was saved, `stored` is pointed at it.
    """
    repeated = []
    for key, tied in (("predictions.decoder.weight", "bert/embeddings/word_embeddings"),
                      ("predictions.decoder.bias", "cls/predictions/output_bias")):  # fmt: skip
        if key not in tensors.shapes:
            continue
        if stored.setdefault(tied, key) != key and not np.array_equal(tensors.read(key), tensors.read(stored[tied])):
            raise UserError(f"{path}: {key} differs from {stored[tied]}, to which ALBERT ties it")
        del stored[key]
        repeated += [key] if stored[tied] != key else []
    return repeated


def _identity_projection(path: str, tensors: tensor_files.Tensors, config: AlbertConfig) -> list[str]:
    """Returns the tensors of an identity projection E to H where E equals H; another one raises UserError."""
    if config.embedding_size != config.hidden_size:
        return []
    inert = [key for key in tensors.shapes if "encoder.embedding_hidden_mapping_in." in key]
    for key in inert:
        expected = np.eye(config.hidden_size) if key.endswith("weight") else np.zeros(config.hidden_size)
        if not np.array_equal(tensors.read(key), expected):
            raise UserError(
                f"{path}: {key} must be the identity (bias 0), since ALBERT has no projection where `embedding_size` "
                "equals `hidden_size`; this model cannot be represented"
            )
    return inert


def _label_names(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the label names of a Hugging Face configuration, unless they are its placeholders."""
    names = values.get("id2label")
    if not isinstance(names, dict) or sorted(names, key=str) != sorted(map(str, range(len(names)))):
        return None
    ordered = tuple(str(names[str(index)]) for index in range(len(names)))
    return None if ordered == tuple(f"LABEL_{index}" for index in range(len(names))) else ordered


def _tensorflow_config_file(prefix: str) -> Path:
    """Returns the configuration beside a checkpoint; some releases call theirs albert_config_base.json and the like."""
    for directory in _places(prefix):
        found = sorted(directory.glob("albert_config*.json"))
        exact = [file for file in found if file.name == CONFIG_FILE]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            raise UserError(
                f"{directory} holds {len(found)} files albert_config*.json; call the right one {CONFIG_FILE}"
            )
    raise UserError(f"{prefix} has no {CONFIG_FILE} beside it; copy that of the model there")


def _places(path: str) -> list[Path]:
    """Returns the directories in which configuration and tokenizer of a checkpoint may stand."""
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    if directory.name == "variables":  # a TF-Hub module
        return [directory, directory.parent, directory.parent / "assets"]
    return [directory]


def _read_label_head(directory: Path) -> dict[str, Any]:
    file = directory / LABEL_HEAD_FILE
    if not file.exists():
        return {"head": SEQUENCE_CLASSIFICATION, "labels": None}
    values = read_json(file, what="description of the label head")
    if not isinstance(values, dict) or set(values) != {"head", "labels"} or values["head"] not in LABEL_HEADS:
        raise UserError(f"{file} must hold `head`, one of {', '.join(LABEL_HEADS)}, and `labels`; received {values!r}")
    return values


def _refuse_layouts(path: str, names: Iterable[str]) -> None:
    """Raises UserError for a layout that is known and cannot be represented."""
    for pattern, what in _REFUSED_LAYOUTS:
        example = next((name for name in names if re.search(pattern, name)), None)
        if example:
            raise UserError(f"{path} cannot be represented as ALBERT; it is {what} (it has {example!r})")
