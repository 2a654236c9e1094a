"""Local files: globs that must match, and writes that are whole or absent."""

import contextlib
import fcntl
import functools
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albert_tf.errors import UserError


def expand_globs(patterns: str, *, flag: str) -> list[Path]:
    """Returns the files that a comma-separated list of paths and globs names, in sorted order without repeats.

    Raises UserError for an empty list, or for an item that matches no file.
    """
    items = [item.strip() for item in patterns.split(",") if item.strip()]
    if not items:
        raise UserError(f"{flag} must name at least one file; received {patterns!r}")
    found: dict[str, str] = {}  # by what a path leads to, so that a file is taken once
    for item in items:
        matches = [item] if os.path.isfile(item) else [path for path in glob.glob(item) if os.path.isfile(path)]
        if not matches:
            reason = "is a directory; add /* to read its files" if os.path.isdir(item) else "matches no file"
            raise UserError(f"{flag}: {item!r} {reason} (working directory {os.getcwd()})")
        for path in sorted(matches):
            found.setdefault(os.path.realpath(path), path)
    return [Path(path) for path in sorted(found.values())]


def require_writable(path: str | Path, *, flag: str, is_file: bool = False) -> None:
    """Raises UserError, which names the flag, where the directory (or the file) `path` could not be written.

    Tries it beside the path, or in the directory above that exists, and leaves nothing there.
    """
    place = Path(path)
    try:
        if place.exists() and place.is_dir() == is_file:
            raise UserError(f"{flag}={path} is a {'directory; name a file' if is_file else 'file; name a directory'}")
        if place.is_symlink() and not place.exists():
            raise UserError(f"{flag}={path} is a link to a place that does not exist")
        while not place.is_dir():
            place = place.parent
            if place.is_file():
                raise UserError(f"{flag}={path}: {place} is a file, and nothing can lie in it")
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=place))
    except OSError as error:
        raise UserError(f"{flag}={path} cannot be written ({error.strerror}); choose another place") from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; it becomes `path` when the block succeeds and is removed when it fails.

    Its name begins with a dot; what a killed process has left of that kind is removed.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        with open(temporary, "rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """Yields the path of a directory to make; it becomes `path` when the block succeeds and is removed when it fails.

    Its temporary name begins with a dot; what a killed process has left of that kind is removed.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with open(file, "rb+") as stream:
                    os.fsync(stream.fileno())
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Returns the temporary name of `path` in this process, and removes those of processes that are no more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for found in _temporaries_before(path.parent):
        name, _, process = found.name.rpartition(".tmp-")
        if name == f".{path.name}" and not os.path.exists(f"/proc/{process}"):
            if found.is_dir():
                shutil.rmtree(found, ignore_errors=True)
            else:
                found.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


@functools.cache
def _temporaries_before(directory: Path) -> list[Path]:
    """Returns the temporaries in a directory; listed once in a process, as it may write thousands of files there."""
    return list(directory.glob(".*.tmp-*"))


@contextlib.contextmanager
def locked_directory(directory: Path, *, what: str) -> Iterator[int]:
    """Makes a directory and keeps a second process out of it; the lock ends with the process, however that ends.

    Yields the descriptor that holds it; a directory in which nothing was made is removed. `what` completes "another
    process is ...".
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is {what} {directory}; wait for it, or stop it") from None
        try:
            yield descriptor
        finally:
            with contextlib.suppress(OSError):
                directory.rmdir()  # only an empty one
    finally:
        os.close(descriptor)


def differing_keys(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Returns the keys of either whose values differ; a key that is absent has the value None."""
    return [key for key in {**recorded, **asked} if recorded.get(key) != asked.get(key)]


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, *, what: str) -> Any:
    """Reads the JSON file `path`; a missing or malformed one raises a UserError that calls it `what`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{what} {str(path)!r} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{what} {str(path)!r} is not valid JSON: {error}") from None
    except OSError as error:
        raise UserError(f"{what} {str(path)!r} cannot be read: {error.strerror}") from None
