"""The error that means "the input is wrong", as opposed to a bug in this project."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in a flag, a file or a configuration; commands print its one sentence and exit with status 1."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or its type's name where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def nearest_names(name: str, choices: Iterable[str]) -> str:
    """Returns "did you mean ...?" for a misspelt `name`, or the list of all choices."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"the choices are {', '.join(choices)}"
