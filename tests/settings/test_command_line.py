import dataclasses
import errno
import io
import os
import sys

import pytest

from albert_tf.errors import UserError
from albert_tf.settings.command_line import help_text, parse_flags, run_command
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.settings.data_preparation import InspectConfig, RecordsConfig, TextConfig, VocabConfig
from albert_tf.settings.export import ExportConfig
from albert_tf.settings.inference import InferenceConfig
from albert_tf.settings.options import option
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.settings.serving import ServeConfig
from albert_tf.settings.tpu import TpuAotConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """Flags of every kind."""

    name: str = option("A name.")
    count: int | None = option("A count.", default=None)
    rate: float = option("A rate.", default=0.5)
    fast: bool = option("Be fast.", default=False)
    mode: str = option("A mode.", default="a", choices=("a", "b"))
    source: str | None = option("A source. Unset: none.", default=None, url=True)


def parse(*arguments):
    return parse_flags(Example, ["command", *arguments])


def run(function, *arguments):
    return run_command(Example, function, description="d", argv=["command", "--name=x", *arguments])


def test_flags_of_every_kind_become_fields(tmp_path):
    assert parse("--name=x", "--count=3", "--fast", "--mode=b") == Example(name="x", count=3, fast=True, mode="b")
    (tmp_path / "f.flags").write_text("# a comment\n--name=y\n--rate=0.25\n")
    assert parse(f"--flagfile={tmp_path}/f.flags", "--rate=1") == Example(name="y", rate=1.0)
    assert parse("--name=x", "--source=gs://bucket/a") == Example(name="x", source="gs://bucket/a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--name must be given"),
        (["--name=x", "--cuont=3"], "unknown flag --cuont; did you mean 'count'"),
        (["--name=x", "--count=three"], "count"),
        (["--name=x", "--mode=c"], "a|b"),
        (["--name=x", "extra"], "received 'extra'"),
        (["--flagfile=/no/such/file"], "no/such/file"),
        (["--name=gs://bucket/run"], "--name must be on this machine; received 'gs://bucket/run': mount it"),
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
        (OSError(errno.EIO, "Input/output error"), 1, "Error: Input/output error"),
        (OSError("Cannot parse file\nx"), 1, "Error: Cannot parse file"),
    ],
)
def test_what_is_not_a_bug_ends_in_one_sentence(capsys, error, status, message):
    assert run(raising(error)) == status
    captured = capsys.readouterr().err
    assert captured.strip().splitlines()[-1].startswith(message)
    assert "Traceback" not in captured


def test_a_closed_pipe_ends_a_command_without_a_word(capsys, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        assert run(lambda config: print("answer")) == 141
    assert capsys.readouterr().err == ""


def test_a_flag_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "f.flags").write_bytes(b"--name=\xff\n")
    with pytest.raises(UserError, match="a --flagfile must be UTF-8 text"):
        parse(f"--flagfile={tmp_path}/f.flags")


def test_names_that_are_not_utf8_can_be_printed(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="utf-8"))
    assert run(lambda config: print("a\udcff")) == 0
    assert written.getvalue() == b"a\\udcff\n"


def test_closed_streams_are_no_obstacle(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert run(lambda config: print(sys.stdout.isatty(), file=sys.stderr)) == 0
    sys.stdout.close()
    sys.stderr.close()


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run(lambda config: 1 // 0)


def test_help_lists_every_flag_with_its_default_and_choices(capsys):
    text = help_text(Example, description="What it does.")
    for part in ("What it does.", "--count", "A name. (required)", "(default: 0.5)", "(default: a; one of a, b)"):
        assert part in text
    assert text.endswith("A source. Unset: none.")
    assert run_command(Example, raising(AssertionError()), description="d", argv=["command", "--help"]) == 0
    assert "--fast" in capsys.readouterr().out


COMMANDS = (InferenceConfig, ConvertConfig, InspectConfig, PretrainConfig, RecordsConfig, VocabConfig, ExportConfig,
            ServeConfig, TpuAotConfig)  # fmt: skip


@pytest.mark.parametrize("config_class", COMMANDS, ids=lambda c: c.__name__)
def test_what_is_read_or_written_locally_only_refuses_a_bucket(config_class):
    remote = {"input_file", "tfds_data_dir"} if issubclass(config_class, TextConfig) else set()
    paths = [f for f in dataclasses.fields(config_class) if f.name.endswith(("_dir", "_file", "put", "checkpoint"))]
    for name in {field.name for field in paths} - remote:
        with pytest.raises(UserError, match=f"--{name} must be on this machine; received 'gs://b/x'"):
            parse_flags(config_class, ["command", f"--{name}=gs://b/x"])


def test_the_flag_of_other_commands_is_answered_with_its_name_here():
    with pytest.raises(UserError, match="unknown flag --spm_model_file; use --tokenizer=FILE"):
        parse_flags(InspectConfig, ["command", "--input_file=a", "--spm_model_file=b"])


def test_the_example_of_a_command_can_be_copied():
    from albert_tf import run_pretraining
    from albert_tf_data_prep import create_pretraining_data

    for module in (run_pretraining, create_pretraining_data):
        first, second = module.__doc__.splitlines()[2:4]
        assert first.endswith(" \\") and second.startswith("        --")
