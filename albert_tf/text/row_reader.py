"""Texts to be answered, read as a stream: lines, TSV, CSV or JSON lines; what cannot be read is told with its line."""

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from albert_tf.errors import UserError, nearest_names

TEXT, TSV, CSV, JSON_LINES = ROW_FORMATS = ("text", "tsv", "csv", "jsonl")

_SUFFIXES = {".tsv": TSV, ".csv": CSV, ".jsonl": JSON_LINES, ".json": JSON_LINES}
_MAX_ROW_BYTES = 2**24


class BadRow(Exception):  # noqa: N818  # it is data: some are skipped
    """What is wrong with a row, without its place."""


@dataclasses.dataclass(frozen=True)
class Position:
    """A place between two rows: bytes and lines before it."""

    offset: int = 0
    line: int = 0


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the input: the line it begins on, its texts, or why it has none; and the place behind it."""

    line: int
    text: str
    pair: str | None
    problem: str | None
    end: Position


class RowReader:
    """The rows of one file. `names` are its columns, where it has a header.

    `row_format` is one of `ROW_FORMATS`; None: by the name of the file.
    """

    def __init__(
        self, path: Path, *, row_format: str | None = None, text_column: str = "text", pair_column: str | None = None
    ) -> None:
        self.path = path
        self.format = row_format or _SUFFIXES.get(path.suffix.lower(), TEXT)
        self._wanted = [text_column] + ([pair_column] if pair_column else [])
        if self.format == TEXT and pair_column:
            raise UserError(f"a pair column needs columns, and {path} is read as plain lines; give its format")
        if not path.is_file():
            raise UserError(f"{path} {'is no file' if path.exists() else 'does not exist'}")
        self.size_bytes = self.path.stat().st_size
        self.names: list[str] = []
        self._begin = Position()
        with open(self.path, "rb") as stream:
            if self.format in (TSV, CSV):
                self._read_header(_Lines(stream, Position()))

    def rows(self, start: Position | None = None) -> Iterator[Row]:
        """Yields the rows from `start` (None: the first) on."""
        with open(self.path, "rb") as stream:
            lines = _Lines(stream, start or self._begin)
            while not lines.at_end():
                first_line = lines.position.line + 1
                try:
                    texts, problem = self._read_texts(lines), None
                except BadRow as error:
                    texts, problem = [""], str(error)
                pair = texts[1] if len(texts) == 2 else None
                yield Row(first_line, texts[0], pair, problem, lines.position)

    def place(self, line: int) -> str:
        """Returns what to call a line in a message."""
        return f"{self.path}:{line}"

    def _read_header(self, lines: "_Lines") -> None:
        if lines.at_end():
            raise UserError(f"{self.path} is empty; a {self.format} file begins with a line of column names")
        try:
            self.names = self._fields(lines)
        except BadRow as error:
            raise UserError(f"{self.place(1)}: {error}") from None
        for name in self._wanted:
            if name not in self.names:
                raise UserError(f"{self.place(1)}: there is no column {name!r}; {nearest_names(name, self.names)}")
        self._begin = lines.position

    def _read_texts(self, lines: "_Lines") -> list[str]:
        """Reads one row and returns its one or two texts; raises BadRow."""
        if self.format == TEXT:
            texts = [lines.read()]
        elif self.format == JSON_LINES:
            texts = self._texts_of_json(lines.read())
        else:
            fields = self._fields(lines)
            if len(fields) != len(self.names):
                raise BadRow(f"{len(fields)} fields, and the header has {len(self.names)}" if fields else "it is empty")
            texts = [fields[self.names.index(name)] for name in self._wanted]
        if not texts[0].strip():
            raise BadRow("its text is empty" if self.format != TEXT else "it is empty")
        return texts

    def _fields(self, lines: "_Lines") -> list[str]:
        if self.format == TSV:  # as GLUE's files: no quoting
            line = lines.read()
            return line.split("\t") if line else []
        begin = lines.position.offset
        csv.field_size_limit(_MAX_ROW_BYTES)
        first = lines.read()
        first_end = lines.position

        def parts() -> Iterator[str]:
            yield first + "\n"
            while not lines.at_end() and lines.position.offset - begin < _MAX_ROW_BYTES:
                yield lines.read() + "\n"

        try:
            return next(csv.reader(parts(), strict=True), [])
        except (csv.Error, BadRow) as error:
            lines.seek(first_end)  # an unbalanced quote costs its line, not those that it runs over
            raise BadRow(f"not CSV: {error}") from None

    def _texts_of_json(self, line: str) -> list[str]:
        if not line.strip():
            raise BadRow("it is empty")
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            raise BadRow(f"not JSON: {error}") from None
        if not isinstance(values, dict):
            raise BadRow(f"a JSON object is expected, not {type(values).__name__}")
        for name in self._wanted:
            if not isinstance(values.get(name), str):
                found = (
                    f"there is no {name!r}; {nearest_names(name, values)}"
                    if name not in values
                    else "it is not a string"
                )
                raise BadRow(f"{name!r} must be a string: {found}")
        return [values[name] for name in self._wanted]


class _Lines:
    """The lines of a stream from a position on, with the position behind the last one read."""

    def __init__(self, stream: BinaryIO, start: Position) -> None:
        self._stream = stream
        self.seek(start)

    def seek(self, position: Position) -> None:
        """Goes to a place that `position` had."""
        self._stream.seek(position.offset)
        self.position = position

    def at_end(self) -> bool:
        """Returns whether there is no further line."""
        at_end = not self._stream.read(1)
        self._stream.seek(self.position.offset)
        return at_end

    def read(self) -> str:
        """Returns the next line without its end; raises BadRow where it is not text."""
        raw = part = self._stream.readline(_MAX_ROW_BYTES)
        end = self.position.offset + len(raw)
        while len(part) == _MAX_ROW_BYTES and not part.endswith(b"\n"):
            part = self._stream.readline(_MAX_ROW_BYTES)
            end += len(part)
        is_first, is_whole = self.position.offset == 0, end == self.position.offset + len(raw)
        self.position = Position(end, self.position.line + 1)
        if not is_whole:
            raise BadRow(f"longer than {_MAX_ROW_BYTES:,} bytes")
        try:
            text = raw.decode("utf-8-sig" if is_first else "utf-8")
        except UnicodeDecodeError as error:
            raise BadRow(f"not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
        return text.removesuffix("\n").removesuffix("\r")
