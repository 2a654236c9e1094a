"""Files of answers: JSON lines, TSV or .npy, written piece by piece, continued after a kill, and whole when named.

Until it is whole, the file is `.<name>.partial`; beside it `.<name>.progress` says how far it goes.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import differing_keys, read_json, write_json

JSON_LINES, TSV, NPY = ".jsonl", ".tsv", ".npy"
FORMATS = (JSON_LINES, TSV, NPY)

_NPY_HEADER_BYTES = 128

Answer = dict[str, Any]  # a row's values by name: a vector, strings or numbers


class AnswerFile:
    """A file of answers that is being written. `progress` is what was committed last; None at the beginning."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in FORMATS:
            raise UserError(f"--output must end in one of {', '.join(FORMATS)}; received {str(path)!r}")
        self.progress: dict[str, Any] | None = None
        self._path = path
        self._settings: dict[str, Any] = {}
        self._shape = [0, 0]
        self._partial = path.with_name(f".{path.name}.partial")
        self._progress_file = path.with_name(f".{path.name}.progress")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(self._partial, "ab")  # noqa: SIM115  # closed by finish or close
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._stream.close()
            raise UserError(f"another process is writing {str(path)!r}") from None
        if path.exists():  # asked under the lock: a process that finishes renames the very file that was opened here
            self.close()
            raise UserError(f"--output {str(path)!r} exists; delete it, or choose another name")

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Goes back to what was committed last, or to nothing; raises UserError where that had other `settings`."""
        self._settings = json.loads(json.dumps(dict(settings)))
        if self._progress_file.exists():
            self.progress = read_json(self._progress_file, what="record of progress")
            changed = differing_keys(self.progress["settings"], self._settings)
            if changed:
                self._stream.close()
                raise UserError(
                    f"{self._partial} was begun with a different {', '.join(changed)}; repeat the command as it was, "
                    f"or delete {self._partial.name} and {self._progress_file.name} to begin anew"
                )
            self._shape = self.progress["shape"]
        self._stream.truncate(self.progress["bytes"] if self.progress else 0)

    def write(self, rows: Sequence[tuple[int, Answer | None]]) -> None:
        """Appends the answers of rows (line, answer); of a row without one .npy has NaN, other files have nothing."""
        if self._path.suffix == NPY:
            self._write_vectors([answer for _, answer in rows])
            return
        for line, answer in rows:
            if answer is None:
                continue
            values = {"line": line, **answer}
            if self._path.suffix == TSV and not self._stream.tell():
                self._stream.write(("\t".join(_flat(values)) + "\n").encode())
            text = "\t".join(_flat(values).values()) if self._path.suffix == TSV else json.dumps(_plain(values))
            self._stream.write((text + "\n").encode())

    def commit(self, **progress: Any) -> None:
        """Makes what was written last, and records how far it goes."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.progress = {**progress, "bytes": self._stream.tell(), "shape": self._shape, "settings": self._settings}
        write_json(self._progress_file, self.progress)

    def finish(self) -> None:
        """Gives the file its name."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        if self._path.suffix == NPY:
            with open(self._partial, "rb+") as stream:
                stream.write(_npy_header(tuple(self._shape)))
                os.fsync(stream.fileno())
        os.replace(self._partial, self._path)
        self._progress_file.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forgets what was written, so that the next run begins anew."""
        self._progress_file.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Lets go of the file; an unfinished one can be continued if something was committed."""
        if not self._stream.closed and not self._progress_file.exists():
            self._partial.unlink(missing_ok=True)
        self._stream.close()

    def _write_vectors(self, answers: Sequence[Answer | None]) -> None:
        width = next((len(next(iter(answer.values()))) for answer in answers if answer is not None), self._shape[1])
        if not self._stream.tell():
            self._stream.write(bytes(_NPY_HEADER_BYTES))
        if not self._shape[1] and width and self._shape[0]:  # only rows without an answer came before
            self._stream.truncate(_NPY_HEADER_BYTES)
            self._stream.write(np.full((self._shape[0], width), np.nan, np.float32).tobytes())
        missing = np.full(width, np.nan, np.float32)
        for answer in answers:
            vector = missing if answer is None else next(iter(answer.values()))
            self._stream.write(np.asarray(vector, np.float32).tobytes())
        self._shape = [self._shape[0] + len(answers), width]


def _npy_header(shape: tuple[int, ...]) -> bytes:
    """Returns the header of a .npy file of float32, padded to the place kept for it."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    prefix = b"\x93NUMPY\x01\x00"
    length = _NPY_HEADER_BYTES - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.ljust(length - 1).encode("latin1") + b"\n"


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it; a float32 keeps the nine digits that bring it back."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return [float(f"{number:.9g}") for number in value.tolist()]
    return float(f"{value:.9g}") if isinstance(value, float | np.floating) else value


def _flat(values: Answer) -> dict[str, str]:
    """Returns the cells of a TSV row by column; a vector has a column for each of its numbers."""
    cells: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            cells |= {f"{name}_{place}": f"{number:.9g}" for place, number in enumerate(value.tolist())}
        elif isinstance(value, dict):
            cells |= {f"{name}_{key}": f"{number:.9g}" for key, number in value.items()}
        elif isinstance(value, list):
            cells[name] = " ".join(value)
        else:
            cells[name] = f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
    return cells
