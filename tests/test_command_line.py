import dataclasses
import errno

import pytest

from albert_tf.command_line import help_text, parse_flags, run_command
from albert_tf.errors import UserError
from albert_tf.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """Flags of every kind."""

    name: str = option("A name.")
    count: int | None = option("A count.", default=None)
    rate: float = option("A rate.", default=0.5)
    fast: bool = option("Be fast.", default=False)
    mode: str = option("A mode.", default="a", choices=("a", "b"))


def parse(*arguments):
    return parse_flags(Example, ["command", *arguments])


def run(function, *arguments):
    return run_command(Example, function, description="d", argv=["command", "--name=x", *arguments])


def test_flags_of_every_kind_become_fields(tmp_path):
    assert parse("--name=x", "--count=3", "--fast", "--mode=b") == Example(name="x", count=3, fast=True, mode="b")
    (tmp_path / "f.flags").write_text("# a comment\n--name=y\n--rate=0.25\n")
    assert parse(f"--flagfile={tmp_path}/f.flags", "--rate=1") == Example(name="y", rate=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--name must be given"),
        (["--name=x", "--cuont=3"], "unknown flag --cuont; did you mean 'count'"),
        (["--name=x", "--count=three"], "count"),
        (["--name=x", "--mode=c"], "a|b"),
        (["--name=x", "extra"], "received 'extra'"),
        (["--flagfile=/no/such/file"], "no/such/file"),
    ],
)
def test_mistakes_are_user_errors(arguments, message):
    with pytest.raises(UserError, match=message):
        parse(*arguments)


def raising(error):
    def function(config):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UserError("the rule"), 1, "Error: the rule"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 1, "Error: the disk is full (/x/y)"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 1, "Error: Permission denied: /x/y"),
    ],
)
def test_what_is_not_a_bug_ends_in_one_sentence(capsys, error, status, message):
    assert run(raising(error)) == status
    captured = capsys.readouterr().err
    assert captured.strip().splitlines()[-1].startswith(message)
    assert "Traceback" not in captured


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run(lambda config: 1 // 0)


def test_help_lists_every_flag_with_its_default_and_choices(capsys):
    text = help_text(Example, description="What it does.", command="command")
    for part in ("What it does.", "--count", "A name. (required)", "(default: 0.5)", "(default: a; one of a, b)"):
        assert part in text
    assert run_command(Example, raising(AssertionError()), description="d", argv=["command", "--help"]) == 0
    assert "--fast" in capsys.readouterr().out
