"""Conversion between the formats of checkpoints, tensor by tensor, without building the model.

The target is written under a temporary name, read back and compared, and only then renamed.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.architecture.weight_names import ARCHITECTURES, LABEL_HEADS, WeightName
from albert_tf.checkpoints import tensor_files
from albert_tf.checkpoints.discovery import HUGGING_FACE, HUGGING_FACE_CONFIG_FILE, LABEL_HEAD_FILE, NATIVE, TF1
from albert_tf.checkpoints.native import CONFIG_FILE, write_checkpoint
from albert_tf.checkpoints.opening import Checkpoint, open_checkpoint
from albert_tf.checkpoints.tensor_files import SLOT_SUFFIXES
from albert_tf.errors import UserError
from albert_tf.files import require_writable, whole_directory, write_json
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.text.hugging_face_tokenizer import write_hf_tokenizer
from albert_tf.text.tokenizer_files import TOKENIZER_DIRECTORY, Tokenizer

TF1_NAME = "model.ckpt-best"  # as in the released archives

_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is written: weights, other tensors of training by name, and the weights that the target has no place for."""

    format: str
    weights: tuple[WeightName, ...]
    training: tuple[str, ...]
    left_out: tuple[str, ...]
    architecture: str | None


def convert(config: ConvertConfig) -> list[str]:
    """Converts a checkpoint; returns the lines of the report. The target is whole or absent."""
    target = Path(config.target)
    if target.exists():
        raise UserError(f"--target {config.target!r} exists; nothing is overwritten: choose another name, or remove it")
    require_writable(target, flag="--target")
    checkpoint = open_checkpoint(
        config.source,
        source_format=config.source_format,
        label_head=config.label_head,
        allow_missing=config.allow_missing,
    )
    plan = _make_plan(checkpoint, config)
    tokenizer = checkpoint.load_tokenizer() if checkpoint.tokenizer_directory else None
    with whole_directory(target) as temporary:
        temporary.mkdir()
        digests = _write(checkpoint, plan, temporary, tokenizer)
        _check_written(temporary, plan, digests, allow_missing=config.allow_missing)
    return _report(checkpoint, plan, target, tokenizer)


def _make_plan(checkpoint: Checkpoint, config: ConvertConfig) -> _Plan:
    """Decides what is written; what the target format cannot hold raises UserError."""
    target_format = config.target_format or (None if checkpoint.format == NATIVE else NATIVE)
    if target_format is None:
        raise UserError(f"the source is a checkpoint of this project: --target_format must be {TF1} or {HUGGING_FACE}")
    architecture = None
    weights = checkpoint.names
    if target_format == HUGGING_FACE:
        checkpoint.config.to_hugging_face()
        architecture = _architecture(checkpoint)
        # A pooler that no head of the class reads goes only where it came from.
        known = (checkpoint.config.hugging_face.get("architectures") or [None])[0] == architecture
        if not ARCHITECTURES[architecture].has_pooler and not known:
            weights = tuple(name for name in weights if not name.tf1_name.startswith("bert/pooler/"))
        if config.include_optimizer:
            raise UserError("--include_optimizer: a Hugging Face directory holds weights only")
    elif target_format == TF1:
        checkpoint.config.with_groups_only()
    training = () if target_format == HUGGING_FACE else _training_state(checkpoint, slots=config.include_optimizer)
    return _Plan(
        format=target_format,
        weights=weights,
        training=training,
        left_out=tuple(name.tf1_name for name in checkpoint.names if name not in weights),
        architecture=architecture,
    )


def _architecture(checkpoint: Checkpoint) -> str:
    """Returns the class of Hugging Face that has exactly these heads."""
    for name, architecture in ARCHITECTURES.items():
        if set(architecture.heads) == set(checkpoint.heads):
            return name
    raise UserError(
        f"{checkpoint.path} has the heads {', '.join(checkpoint.heads)}; no ALBERT class of Hugging Face has these: "
        + ", ".join(f"{name} ({', '.join(made.heads) or 'none'})" for name, made in ARCHITECTURES.items())
    )


def _training_state(checkpoint: Checkpoint, *, slots: bool) -> tuple[str, ...]:
    """Returns the names of the step and, where asked for, of the optimizer's slots; a missing slot raises UserError."""
    step = ("global_step",) if "global_step" in checkpoint.stored else ()
    if not slots:
        return step
    wanted = tuple(name.tf1_name + suffix for name in checkpoint.names for suffix in SLOT_SUFFIXES)
    missing = [name for name in wanted if name not in checkpoint.stored]
    if missing:
        raise UserError(
            f"--include_optimizer asks for the moments of every weight, and {checkpoint.path} lacks {len(missing)} of "
            f"{len(wanted)}, among them {missing[0]}"
        )
    return (*step, *wanted)


def _write(checkpoint: Checkpoint, plan: _Plan, directory: Path, tokenizer: Tokenizer | None) -> dict[str, bytes]:
    """Writes the target's files; returns a digest of each tensor by TF1 name."""
    digests: dict[str, bytes] = {}

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        for name in plan.weights:
            value = checkpoint.read(name.tf1_name)
            digests[name.tf1_name] = _digest(value)
            if plan.format == HUGGING_FACE:
                yield name.hf_name or "", np.ascontiguousarray(value.T) if name.transposed else value
            else:
                yield name.tf1_name, value
        for state in plan.training:
            value = checkpoint.tensors.read(checkpoint.stored[state])
            digests[state] = _digest(value)
            yield state, value

    names = [name.tf1_name for name in plan.weights] + list(plan.training)
    if plan.format == HUGGING_FACE:
        tensor_files.write_safetensors(directory, _hugging_face_tensors(tensors(), checkpoint, plan))
        write_json(directory / HUGGING_FACE_CONFIG_FILE, _hugging_face_config(checkpoint, plan, tokenizer))
    else:
        if plan.format == TF1:
            tensor_files.write_tensorflow(str(directory / TF1_NAME), tensors())
        else:
            step = int(checkpoint.tensors.read(checkpoint.stored["global_step"])) if "global_step" in names else 0
            write_checkpoint(directory, names, tensors=tensors(), step=step)
        config = checkpoint.config if plan.format == NATIVE else checkpoint.config.with_groups_only()
        config.save(directory / CONFIG_FILE)
        label_head = next((head for head in checkpoint.heads if head in LABEL_HEADS), None)
        if label_head:
            write_json(directory / LABEL_HEAD_FILE, {"head": label_head, "labels": checkpoint.labels})
    if tokenizer is not None and plan.format == HUGGING_FACE:
        write_hf_tokenizer(tokenizer, directory, max_seq_length=checkpoint.config.max_position_embeddings)
    elif tokenizer is not None:
        tokenizer.save(directory / TOKENIZER_DIRECTORY if plan.format == NATIVE else directory)
    return digests


def _hugging_face_tensors(
    tensors: Iterator[tuple[str, np.ndarray]], checkpoint: Checkpoint, plan: _Plan
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under their names in the file, with the identity projection of models that have none."""
    prefix = "albert." if plan.architecture == "AlbertModel" else ""  # AlbertModel alone is saved without it
    size = checkpoint.config.hidden_size
    if checkpoint.config.embedding_size == size:
        yield f"{_PROJECTION}.weight".removeprefix(prefix), np.eye(size, dtype=np.float32)
        yield f"{_PROJECTION}.bias".removeprefix(prefix), np.zeros(size, np.float32)
    for name, value in tensors:
        yield name.removeprefix(prefix), value


def _hugging_face_config(checkpoint: Checkpoint, plan: _Plan, tokenizer: Tokenizer | None) -> dict[str, Any]:
    config = checkpoint.config
    special_ids = {}
    if tokenizer is not None and not config.hugging_face:
        # [CLS] and [SEP] stand where Hugging Face's ALBERT has the beginning and the end of a text.
        special_ids = {
            "pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id
        }  # fmt: skip
    values = {**config.to_hugging_face(), **special_ids, "architectures": [plan.architecture], "dtype": "float32"}
    values.pop("torch_dtype", None)
    if checkpoint.num_labels and plan.architecture != "AlbertForMultipleChoice":
        labels = checkpoint.labels or tuple(f"LABEL_{index}" for index in range(checkpoint.num_labels))
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values


def _check_written(directory: Path, plan: _Plan, digests: dict[str, bytes], *, allow_missing: str | None) -> None:
    """Reads the target back; raises RuntimeError unless it has exactly the tensors that were read."""
    written = open_checkpoint(directory, source_format=plan.format, allow_missing=allow_missing)
    names = {*written.shapes, *(name for name in plan.training if name in written.stored)}
    if names != set(digests):
        raise RuntimeError(f"written were {sorted(digests)}, and read back {sorted(names)}")
    for name, digest in digests.items():
        value = written.read(name) if name in written.shapes else written.tensors.read(written.stored[name])
        if _digest(value) != digest:
            raise RuntimeError(f"{name} is not read back as it was written")


def _digest(value: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(value).data).digest()


def _report(checkpoint: Checkpoint, plan: _Plan, target: Path, tokenizer: Tokenizer | None) -> list[str]:
    """Returns a line for each weight, source name and target name, and the totals."""
    from_there, to_there = (there == HUGGING_FACE for there in (checkpoint.format, plan.format))
    rows = [("from", "to", "shape", "")]
    for name in plan.weights:
        turned = "transposed" if name.transposed and from_there != to_there else ""
        source, to = ((name.hf_name if there else None) or name.tf1_name for there in (from_there, to_there))
        rows.append((source, to, "x".join(map(str, name.shape)), turned))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=True)) for row in rows]
    left_out = [*plan.left_out, *sorted(set(checkpoint.inert) - set(plan.training))]
    moments = [name for name in left_out if name.endswith(SLOT_SUFFIXES)]
    left_out = [name for name in left_out if name not in moments]
    keep = " (--include_optimizer keeps them)" if plan.format != HUGGING_FACE else ""
    told = f", optimizer moments left out {len(moments)}{keep}" if moments else ""
    pieces = (
        f"{tokenizer.kind}, {tokenizer.vocab_size} pieces"
        if tokenizer
        else (
            f"none stands beside the source; put its spiece.model or vocab.txt into {target}, or this can neither be "
            "exported nor answer texts"
        )
    )
    read = len(checkpoint.names) + len(plan.training)
    return [
        *(line.rstrip() for line in lines),
        "",
        f"{checkpoint.format} {checkpoint.path} -> {plan.format} {target}",
        f"heads: {', '.join(checkpoint.heads) or 'none'}; tokenizer: {pieces}",
        f"read {read}, mapped {len(plan.weights) + len(plan.training)}, "
        f"transposed {sum(row[3] == 'transposed' for row in rows)}, "
        f"missing {len(checkpoint.missing)}{_listed(checkpoint.missing)}, "
        f"unused {len(checkpoint.unused)}{_listed(checkpoint.unused)}, left out {len(left_out)}{_listed(left_out)}"
        f"{told}",
        "every tensor was read back from the target and is the same",
    ]


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})" if names else ""
