"""From the command line to a frozen dataclass and one call; how commands end."""

import dataclasses
import errno
import io
import logging as python_logging
import os
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import flags, logging

from albert_tf.errors import UserError, first_line, nearest_names

Config = TypeVar("Config")

EXIT_USER_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def run_command(
    config_class: type[Config],
    run: Callable[[Config], int | None],
    *,
    description: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Parses flags into `config_class`, calls `run`, and returns the exit status.

    A UserError, an interrupt, or an error of the operating system, such as a full disk, ends in one sentence; anything
    else is a bug of this project and keeps its traceback. A reader of the output that closes its pipe ends the command.
    """
    argv = list(sys.argv if argv is None else argv)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # a closed one is None
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    _set_up_logging()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of names that are not UTF-8
    try:
        if any(argument in ("--help", "-help", "-h", "--h") for argument in argv[1:]):
            print(help_text(config_class, description=description))
            return 0
        status = run(parse_flags(config_class, argv)) or 0
        sys.stdout.flush()
        return status
    except UserError as error:
        return _end(f"Error: {error}", EXIT_USER_ERROR)
    except KeyboardInterrupt:
        return _end("Interrupted; no partial output was left under its final name.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        with open(os.devnull, "w") as nowhere:  # for what is still to be flushed
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _end(f"Error: the disk is full ({error.filename or 'while writing'})", EXIT_USER_ERROR)
        place = f": {os.fsdecode(error.filename)}" if error.filename else ""
        return _end(f"Error: {error.strerror or first_line(error)}{place}", EXIT_USER_ERROR)


def parse_flags(config_class: type[Config], argv: Sequence[str]) -> Config:
    """Returns the dataclass that the command line (with any `--flagfile`) describes; raises UserError."""
    flag_values = _define_flags(config_class)
    try:
        positional = flag_values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        known = [field.name for field in dataclasses.fields(config_class)]  # type: ignore[arg-type]
        advice = getattr(config_class, "REPLACED", {}).get(error.flagname) or nearest_names(error.flagname, known)
        raise UserError(f"unknown flag --{error.flagname}; {advice}") from None
    except (flags.Error, OSError) as error:
        raise UserError(f"{str(error).removeprefix('ERROR:: ')} (see --help)") from None
    except UnicodeDecodeError as error:
        raise UserError(f"a --flagfile must be UTF-8 text; one of these is not: {error}") from None
    if positional:
        raise UserError(f"arguments must be flags; received {positional[0]!r} (quote globs: --input_file='a/*.txt')")
    values, missing = {}, []
    for field in dataclasses.fields(config_class):  # type: ignore[arg-type]
        value = values[field.name] = flag_values[field.name].value
        if isinstance(value, str) and "://" in value and not field.metadata["url"]:
            raise UserError(
                f"--{field.name} must be on this machine; received {value!r}: mount it as a directory, or copy it"
            )
        if field.default is dataclasses.MISSING and not values[field.name]:
            missing.append(f"--{field.name}")
    if missing:
        raise UserError(f"{', '.join(missing)} must be given (see --help)")
    return config_class(**values)


def log_settings(config: Any) -> None:
    """Logs what every flag has come to, so that a person sees it before anything slow begins."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    given = [f"--{name}={value}" for name, value in values.items() if value is not None]
    logging.info("Settings: %s", " ".join(given))


def help_text(config_class: type, *, description: str) -> str:
    """Returns the text of `--help`."""
    lines = [description.strip(), "", "Flags (also from a file: --flagfile=FILE):"]
    for field in dataclasses.fields(config_class):
        notes = []
        if field.default is dataclasses.MISSING:
            notes.append("required")
        elif field.default is not None:
            notes.append(f"default: {field.default}")
        if field.metadata["choices"]:
            notes.append(f"one of {', '.join(field.metadata['choices'])}")
        text = field.metadata["help"] + (f" ({'; '.join(notes)})" if notes else "")
        lines += [f"  --{field.name}", textwrap.fill(text, 110, initial_indent="      ", subsequent_indent="      ")]
    return "\n".join(lines)


def _define_flags(config_class: type) -> flags.FlagValues:
    """Declares one flag for each field, on FlagValues of their own."""
    flag_values = flags.FlagValues()
    define: dict[Any, Callable[..., Any]] = {
        str: flags.DEFINE_string,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_bool,
    }
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        kind = hints[field.name]
        if isinstance(kind, types.UnionType):
            kind = next(member for member in typing.get_args(kind) if member is not types.NoneType)
        default = None if field.default is dataclasses.MISSING else field.default
        if field.metadata["choices"]:
            flags.DEFINE_enum(
                field.name, default, list(field.metadata["choices"]), field.metadata["help"], flag_values=flag_values
            )
        else:
            define[kind](field.name, default, field.metadata["help"], flag_values=flag_values)
    return flag_values


def _set_up_logging() -> None:
    """Sends log lines to standard error as "12:34:56 message", without TensorFlow's notices to its own developers."""
    flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    handler = logging.get_absl_handler()
    handler.setFormatter(python_logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_for_users)
    logging.set_verbosity(logging.INFO)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what matters to a user also comes as an exception


def _is_for_users(record: python_logging.LogRecord) -> bool:
    from_tensorflow = f"{os.sep}tensorflow{os.sep}" in record.pathname
    return not from_tensorflow or (record.levelno >= python_logging.WARNING and "deprecated" not in record.msg)


def _end(message: str, status: int) -> int:
    sys.stdout.flush()
    print(message, file=sys.stderr)
    return status
