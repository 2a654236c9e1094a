"""Where raw text comes from: files, plain or compressed, of lines or JSON lines, here or in the cloud, and TFDS."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Protocol

import google_crc32c

from albert_tf.errors import UserError, first_line, nearest_names
from albert_tf.files import expand_globs
from albert_tf.settings.data_preparation import TextConfig

MAX_LINE_BYTES = 64 * 2**20
# Text shrinks 2 to 20 times; what grows more than this, beyond an allowance, is not text.
MAX_EXPANSION = 200
EXPANSION_ALLOWANCE_BYTES = 64 * 2**20

_READ_BYTES = 2**16
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class ReadCounts:
    """What was met while reading; grows as text is read."""

    def __init__(self) -> None:
        self.input_bytes = 0  # of the files as they lie
        self.text_bytes = 0  # after decompression
        self.lines = 0
        self.lines_with_invalid_bytes = 0
        self.documents_cut = 0
        self.sentences_cut = 0


class TextSource(Protocol):
    """A file or data set. Its lines are numbered, without surrounding white space; None ends each of its texts."""

    size_bytes: int

    def lines(self, config: TextConfig, counts: ReadCounts) -> Iterator[tuple[int, str | None]]:
        """Yields lines; raises UserError with the place of what cannot be read."""

    def place(self, number: int) -> str:
        """Returns what to call line `number` in an error."""

    def identity(self) -> dict[str, Any]:
        """Returns name, size and checksum: sources of equal content have equal identities."""


def open_sources(config: TextConfig) -> Sequence[TextSource]:
    """Returns the sources that the flags name, in sorted order; raises UserError where there is none."""
    if config.tfds_name:
        return [TfdsSource(config)]
    items = [item.strip() for item in (config.input_file or "").split(",")]
    remote = [item for item in items if "://" in item]
    local = ",".join(item for item in items if "://" not in item)
    paths = [str(path) for path in expand_globs(local, flag="--input_file")] if local or not remote else []
    for item in remote:
        paths += _remote_files(item)
    json_lines = [path for path in paths if not config.text_key and ".jsonl" in PurePosixPath(path).suffixes]
    if json_lines:
        raise UserError(f"{json_lines[0]} holds JSON lines by its name: --text_key must name the key of the text")
    return [FileSource(path) for path in sorted(set(paths))]


class FileSource:
    """A text file, or with `text_key` one of JSON lines; a suffix says how it is compressed, a scheme where it lies."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_remote = "://" in path
        self.size_bytes = _gfile().stat(path).length if self._is_remote else os.stat(path).st_size

    def place(self, number: int) -> str:
        """Returns file and line."""
        return f"{self._path}:{number}"

    def identity(self) -> dict[str, Any]:
        """Returns name, size and the CRC-32C of the bytes."""
        crc = 0
        with self._open() as stream:
            while chunk := stream.read(_READ_BYTES):
                crc = google_crc32c.extend(crc, chunk)
        return {"name": PurePosixPath(self._path).name, "bytes": self.size_bytes, "crc32c": f"{crc:08x}"}

    def lines(self, config: TextConfig, counts: ReadCounts) -> Iterator[tuple[int, str | None]]:
        """Yields lines; those of a JSON text bear the number of its JSON line. A text ends with its file or JSON."""
        for number, raw in self._raw_lines(counts):
            place = self.place(number)
            line = decode(raw, place=place, config=config, counts=counts).strip()
            if config.text_key is None:
                yield number, line
            elif line:
                text = check_text(
                    _text_of_json(line, config.text_key, place), place=place, config=config, counts=counts
                )
                yield from ((number, part.strip()) for part in text.split("\n"))
                yield number, None
        yield 0, None

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with _gfile().GFile(self._path, "rb") if self._is_remote else open(self._path, "rb") as stream:
                yield stream
        except OSError as error:
            error.filename = error.filename or self._path  # a failing disk does not say it
            raise

    def _raw_lines(self, counts: ReadCounts) -> Iterator[tuple[int, bytes]]:
        """Yields numbered lines of decompressed bytes; \\n ends a line, a byte-order mark is dropped."""
        number, expanded, consumed_before = 0, 0, counts.input_bytes
        with contextlib.ExitStack() as stack:
            raw = io.BufferedReader(_Counted(stack.enter_context(self._open()), counts), _READ_BYTES)
            suffix = PurePosixPath(self._path).suffix
            stream = stack.enter_context(_DECOMPRESSORS[suffix](raw)) if suffix in _DECOMPRESSORS else raw
            while line := self._read_line(stream, number + 1):
                number += 1
                expanded += len(line)
                counts.text_bytes += len(line)
                counts.lines += 1
                consumed = counts.input_bytes - consumed_before
                if expanded > max(EXPANSION_ALLOWANCE_BYTES, MAX_EXPANSION * consumed):
                    raise UserError(f"{self.place(number)}: {consumed:,} compressed bytes grew to more than "
                                    f"{MAX_EXPANSION} times as many, which text does not; leave the file out, or "
                                    "decompress it first")  # fmt: skip
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line

    def _read_line(self, stream: BinaryIO, number: int) -> bytes:
        try:
            line = stream.readline(MAX_LINE_BYTES)
        except _damage() as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk, not of the data
            raise UserError(f"{self.place(number)}: the compressed file is damaged ({error})") from None
        if len(line) == MAX_LINE_BYTES:
            raise UserError(f"{self.place(number)}: a line may have at most {MAX_LINE_BYTES:,} bytes")
        return line


class TfdsSource:
    """A split of a TensorFlow Datasets data set; each example is a text."""

    def __init__(self, config: TextConfig) -> None:
        import tensorflow_datasets as tfds

        self._name = f"{config.tfds_name}, split {config.tfds_split}"
        self._key = config.text_key or "text"
        try:
            self._examples, info = tfds.load(
                config.tfds_name, split=config.tfds_split, data_dir=config.tfds_data_dir, with_info=True
            )
            split = info.splits[config.tfds_split]
        except Exception as error:  # of many kinds, from the network to the data set's own code
            asked = f"--tfds_name={config.tfds_name} --tfds_split={config.tfds_split}"
            raise UserError(f"{asked}: {first_line(error)}") from None
        if self._key not in self._examples.element_spec:
            choices = nearest_names(self._key, self._examples.element_spec)
            raise UserError(f"--text_key={self._key!r} is not a feature of {config.tfds_name}; {choices}")
        self._iterate = tfds.as_numpy
        self._full_name, self._count = info.full_name, split.num_examples
        self._files = [FileSource(str(path)) for path in split.filepaths]
        self.size_bytes = sum(file.size_bytes for file in self._files)

    def place(self, number: int) -> str:
        """Returns data set, split and example."""
        return f"{self._name}: example {number}"

    def identity(self) -> dict[str, Any]:
        """Returns name, version and split, and the identities of its files."""
        files = [file.identity() for file in self._files]
        return {"name": f"{self._full_name}: {self._name}", "examples": self._count, "files": files}

    def lines(self, config: TextConfig, counts: ReadCounts) -> Iterator[tuple[int, str | None]]:
        """Yields the lines of each example's text."""
        for number, example in enumerate(self._iterate(self._examples), start=1):
            raw, place = example[self._key], self.place(number)
            if not isinstance(raw, bytes):
                raise UserError(f"{place}: --text_key={self._key!r} must be a text; it is {type(raw).__name__}")
            for line in decode(raw, place=place, config=config, counts=counts).split("\n"):
                counts.lines += 1
                yield number, line.strip()
            yield number, None
            counts.text_bytes += len(raw)
            counts.input_bytes = self.size_bytes * number // self._count


def decode(raw: bytes, *, place: str, config: TextConfig, counts: ReadCounts) -> str:
    """Returns UTF-8 bytes as text; other bytes and NULs raise UserError or become U+FFFD, as the flag says."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"a byte that is not UTF-8 (0x{raw[error.start]:02x} at byte {error.start + 1})"
        _refuse_or_count(problem, place=place, config=config, counts=counts)
        return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")
    return check_text(text, place=place, config=config, counts=counts)


def check_text(text: str, *, place: str, config: TextConfig, counts: ReadCounts) -> str:
    """Does for NULs and lone surrogates, which JSON can spell, what `decode` does for bytes."""
    if "\0" in text:
        _refuse_or_count("a NUL character (is the file UTF-16?)", place=place, config=config, counts=counts)
    elif not text.isascii() and _LONE_SURROGATE.search(text):
        _refuse_or_count("half a surrogate pair", place=place, config=config, counts=counts)
    else:
        return text
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\0", "\ufffd"))


def _refuse_or_count(problem: str, *, place: str, config: TextConfig, counts: ReadCounts) -> None:
    if config.invalid_bytes == "refuse":
        raise UserError(f"{place}: text must be UTF-8; this line has {problem}. Convert the file, "
                        "or pass --invalid_bytes=replace to put U+FFFD there")  # fmt: skip
    counts.lines_with_invalid_bytes += 1


def _text_of_json(line: str, key: str, place: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: --text_key reads JSON lines, and this one is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{place}: a JSON line must be an object; this one is {type(value).__name__}")
    if key not in value:
        raise UserError(f"{place}: the object has no {key!r}, which --text_key names; {nearest_names(key, value)}")
    if not isinstance(value[key], str):
        raise UserError(f"{place}: {key!r} must be a text; it is {type(value[key]).__name__}")
    return value[key]


class _Counted(io.RawIOBase):
    """A binary file, of Python or of TensorFlow, that counts what is read of it."""

    def __init__(self, stream: Any, counts: ReadCounts) -> None:
        self._stream = stream
        self._counts = counts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._counts.input_bytes += len(data)
        return len(data)


def _open_zstd(stream: Any) -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.open(stream)


def _damage() -> tuple[type[Exception], ...]:
    """Returns what decompressors raise; those of zstd if it is in use, because importing it takes time."""
    names = [name for name in ("compression.zstd", "backports.zstd") if name in sys.modules]
    return EOFError, OSError, zlib.error, lzma.LZMAError, *(sys.modules[name].ZstdError for name in names)


_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstd,
}


def _gfile() -> Any:
    """Returns TensorFlow's files, which reach into the cloud; workers never need them."""
    import tensorflow as tf

    return tf.io.gfile


def _remote_files(pattern: str) -> list[str]:
    """Returns the files that a path or glob with a scheme names; raises UserError for none."""
    import tensorflow as tf

    try:
        found = [path for path in tf.io.gfile.glob(pattern) if not tf.io.gfile.isdir(path)]
    except tf.errors.OpError as error:
        raise UserError(f"--input_file: {pattern!r} cannot be read: {error.message.splitlines()[0]}") from None
    if not found:
        raise UserError(f"--input_file: {pattern!r} matches no file")
    return found
