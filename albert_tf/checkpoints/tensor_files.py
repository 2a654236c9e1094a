"""The files of checkpoints, tensor by tensor: TensorFlow's (native and TF1) and safetensors (Hugging Face).

Nothing here knows what a tensor means; `albert_tf.architecture.weight_names` does. A tensor is read when it is asked
for, and files are written in parts, so that memory is bounded by the largest part and not by the model.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from albert_tf.errors import UserError, first_line
from albert_tf.files import write_json

SAFETENSORS_FILE = "model.safetensors"
SAFETENSORS_INDEX = SAFETENSORS_FILE + ".index.json"

SLOT_SUFFIXES = ("/adam_m", "/adam_v")

_PART_BYTES = 2**30  # a file of more than this is written in parts
_PICKLES = (".bin", ".pt", ".pth", ".pkl")
_VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# TensorFlow's reader translates statuses to Python's own exceptions, the one of a short file to IndexError.
_READ_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, IndexError)

NamedArrays = Iterable[tuple[str, Any]]  # numpy arrays, or bytes for a string


class Tensors(Protocol):
    """The tensors of a checkpoint under the names that its files use."""

    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor, as `as_stored_here` has it; raises UserError where the file is damaged."""


class TensorFlowTensors:
    """A checkpoint of TensorFlow with this prefix. Data files are opened at the first `read`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
        except _READ_ERRORS as error:
            raise UserError(f"checkpoint {prefix!r} cannot be read: {first_line(error)}") from None
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(shape) for name, shape in shapes.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor; raises UserError where the data file is missing or damaged."""
        try:
            value = self._reader.get_tensor(name)
        except _READ_ERRORS as error:
            raise UserError(f"checkpoint {self.prefix!r} cannot be read: {first_line(error)}") from None
        return as_stored_here(value, what=f"{self.prefix}: {name}")


class SafetensorsTensors:
    """The tensors of safetensors files, read one at a time (mapped files would count as memory of the process)."""

    def __init__(self, files: list[Path]) -> None:
        self._handles = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in files:
            try:
                handle = safetensors.safe_open(str(file), framework="numpy", backend="pread")
            except (safetensors.SafetensorError, OSError) as error:
                raise UserError(f"{file} is not a whole safetensors file: {first_line(error)}") from None
            for name in handle.keys():  # noqa: SIM118 - the handle is not a mapping
                self._handles[name] = handle
                self.shapes[name] = tuple(handle.get_slice(name).get_shape())

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor."""
        return as_stored_here(self._handles[name].get_tensor(name), what=name)


def as_stored_here(value: np.ndarray, *, what: str) -> np.ndarray:
    """Returns weights as float32 (half precision widens exactly) and integers unchanged; others raise UserError."""
    if value.dtype in (np.float32, np.int32, np.int64):
        return value
    if value.dtype.name in ("float16", "bfloat16"):
        return value.astype(np.float32)
    raise UserError(f"{what} is {value.dtype}; weights must be float32, float16 or bfloat16")


def safetensors_files(path: Path) -> list[Path]:
    """Returns the safetensors files that a file or a directory names; raises UserError where there is none."""
    if path.suffix == ".safetensors" and path.is_file():
        return [path]
    if (path / SAFETENSORS_FILE).exists():
        return [path / SAFETENSORS_FILE]
    index = path / SAFETENSORS_INDEX
    if not index.exists():
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise refusal_of(path)
        if len(files) > 1:
            raise UserError(f"{path} holds {len(files)} safetensors files; name one, or add {SAFETENSORS_INDEX}")
        return files
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{index} is not an index of safetensors files") from None
    absent = [name for name in names if not (path / name).is_file()]
    if absent:
        raise UserError(f"{path} lacks {absent[0]}, which its {SAFETENSORS_INDEX} names")
    return [path / name for name in names]


def refusal_of(path: Path) -> UserError:
    """Returns the error of a path at which no checkpoint of a known format stands."""
    suffixes = {file.suffix for file in (path.iterdir() if path.is_dir() else [path])}
    if suffixes & set(_PICKLES):
        return UserError(
            f"{path} is a pickle ({min(suffixes & set(_PICKLES))}), which can run any code when it is read; convert it "
            "where you trust it: AlbertModel.from_pretrained(directory).save_pretrained(new_directory) of transformers "
            "(or the class of its head) writes safetensors"
        )
    return UserError(
        f"{path} is not a checkpoint: there is no *.index (TensorFlow) and no *.safetensors (Hugging Face); other "
        "kinds of files are not read"
    )


def find_tensorflow_prefix(path: str) -> str | None:
    """Returns the prefix that a prefix, one of its files or a directory names; None where there is no checkpoint.

    The `checkpoint` file of a directory counts by the name in it, since its path is often another machine's. Several
    checkpoints without such a file raise UserError.
    """
    directory = Path(path)
    if directory.is_dir():
        if (directory / "variables" / "variables.index").is_file():  # a TF-Hub module, or another SavedModel
            return str(directory / "variables" / "variables")
        prefixes = sorted(str(file)[: -len(".index")] for file in directory.glob("*.index"))
        state = _checkpoint_state(directory)
        if state is not None and str(directory / state) in prefixes:
            return str(directory / state)
        if len(prefixes) > 1:
            raise UserError(
                f"checkpoint directory {path!r} does not say which checkpoint to use: it holds {len(prefixes)} of "
                f"them; name one, such as {prefixes[-1]!r}"
            )
        return prefixes[0] if prefixes else None
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return prefix if Path(prefix + ".index").is_file() else None


def _checkpoint_state(directory: Path) -> str | None:
    """Returns the name of the newest checkpoint by the directory's `checkpoint` file."""
    try:
        text = (directory / "checkpoint").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, flags=re.MULTILINE)
    return re.split(r"[/\\]", match[1])[-1] if match else None


def write_safetensors(directory: Path, tensors: NamedArrays) -> None:
    """Writes `model.safetensors`, or for large models parts of it with an index, as transformers reads them."""
    parts, total = 0, 0
    part_of: dict[str, int] = {}
    for part in _in_parts(tensors):
        arrays = dict(part)
        parts += 1
        _save_safetensors(arrays, directory / f"part-{parts}")
        part_of |= dict.fromkeys(arrays, parts)
        total += sum(array.nbytes for array in arrays.values())
    if parts == 1:
        (directory / "part-1").rename(directory / SAFETENSORS_FILE)
        return
    names = {n: f"model-{n:05d}-of-{parts:05d}.safetensors" for n in range(1, parts + 1)}
    for number, name in names.items():
        (directory / f"part-{number}").rename(directory / name)
    weight_map = {tensor: names[number] for tensor, number in part_of.items()}
    write_json(directory / SAFETENSORS_INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _save_safetensors(arrays: dict[str, np.ndarray], path: Path) -> None:
    try:
        safetensors.numpy.save_file(arrays, path, metadata={"format": "pt"})  # transformers asks for the metadata
        path.chmod(path.parent.stat().st_mode & 0o666)  # the library's file is readable by its owner only
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} could not be written ({first_line(error)}); is the disk full?") from None


def write_tensorflow(prefix: str, tensors: NamedArrays) -> None:
    """Writes a TensorFlow checkpoint: one data file, or several for large models, and the index."""
    written: list[str] = []
    try:
        for part in _in_parts(tensors):
            # TensorFlow lets go of the array behind a constant only when the next operation runs.
            names, values = zip(*((name, tf.identity(tf.constant(value))) for name, value in part), strict=True)
            written.append(f"{prefix}-part-{len(written)}")
            tf.raw_ops.SaveV2(
                prefix=written[-1], tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
            )
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=written, destination_prefix=prefix, delete_old_dirs=False)
    except tf.errors.OpError as error:
        raise UserError(f"{prefix} could not be written ({first_line(error)}); is the disk full?") from None


def _in_parts(tensors: NamedArrays) -> Iterator[Iterator[tuple[str, Any]]]:
    """Cuts tensors into runs of at least `_PART_BYTES`, the last one excepted; each must be used up before the next."""
    tensors = iter(tensors)
    for first in tensors:
        yield _part(first, tensors)


def _part(first: tuple[str, Any], others: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    size = np.asarray(first[1]).nbytes
    yield first
    while size < _PART_BYTES:
        following = next(others, None)
        if following is None:
            return
        size += np.asarray(following[1]).nbytes
        yield following


def native_name(key: str) -> str | None:
    """Returns the TF1 name (of a slot too) of a key in a checkpoint of ours; None where it is not one of them."""
    match = re.fullmatch(rf"(?:(?:weights|slots)/)?([^/]+){_VALUE_SUFFIX}", key)
    return match[1].replace(".S", "/").replace("..", ".") if match else None


def native_key(name: str) -> str:
    """Undoes `native_name`."""
    if name == "global_step":
        return name + _VALUE_SUFFIX
    child = "slots" if name.endswith(SLOT_SUFFIXES) else "weights"
    return f"{child}/{name.replace('.', '..').replace('/', '.S')}{_VALUE_SUFFIX}"
