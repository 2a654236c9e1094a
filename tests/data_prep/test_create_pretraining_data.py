import os
import signal
import subprocess
import sys
import time

import pytest
from commands import assert_one_sentence, run
from conftest import BOOKS, GOLDEN, ROOT

SCRIPT = "data_prep/create_pretraining_data.py"
MODEL = GOLDEN / "tokenization" / "spiece.model"


def create(text, directory, *flags, **options):
    return run(
        SCRIPT, f"--input_file={text}", f"--spm_model_file={MODEL}", f"--output_dir={directory}", *flags, **options
    )


def test_one_sentence_a_line_is_the_default(tmp_path):
    (tmp_path / "t.txt").write_text("One is here.\nTwo is here.\nThree is here.\n\nA b.\nC d.\n")
    process = create(tmp_path / "t.txt", tmp_path / "out", "--max_seq_length=16", "--dupe_factor=3")
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "out" / "manifest.json").exists()
    assert "train: " in process.stderr and "2 documents" in process.stderr


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--input_file=none.txt"], ["--input_file: 'none.txt' matches no file"]),
        (["--input_file=no/*.txt"], ["'no/*.txt' matches no file"]),
        (["--spm_model_file=none.model"], ["'none.model' cannot be read"]),
        (["--dupe_facto=3"], ["unknown flag --dupe_facto; did you mean 'dupe_factor'?"]),
        (["--max_seq_length=15"], ["--max_seq_length must be from 16"]),
        (["--document_mode=page"], ["document_mode", "blank_line"]),
    ],
    ids=str,
)
def test_mistakes_end_in_one_sentence_and_leave_nothing(tmp_path, flags, parts):
    (tmp_path / "t.txt").write_text("One.\nTwo.\n")
    process = create(tmp_path / "t.txt", tmp_path / "out", *flags)
    assert_one_sentence(process, *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["has no text"]),
        (b"fine\nfine\n\xff\xfe\n", ["t.txt:3: text must be UTF-8", "--invalid_bytes=replace"]),
        (b"fine\nfine\n\0\n", ["t.txt:3: ", "NUL"]),
    ],
    ids=["empty", "not UTF-8", "NUL"],
)
def test_bad_text_ends_in_one_sentence_and_leaves_nothing_finished(tmp_path, content, parts):
    (tmp_path / "t.txt").write_bytes(content)
    process = create(tmp_path / "t.txt", tmp_path / "out", "--num_workers=1")
    assert_one_sentence(process, *parts)
    assert not list((tmp_path / "out").rglob("*"))


def test_a_dry_run_estimates_and_writes_nothing(tmp_path):
    flags = ["--document_mode=heading", "--sentence_split=prose", "--max_seq_length=64", "--dupe_factor=2"]
    process = create(f"{BOOKS}/Lewis*.txt", tmp_path / "out", "--dry_run", *flags)
    assert process.returncode == 0, process.stderr
    assert "Sample: " in process.stdout and "All of it" in process.stdout and "train: " in process.stdout
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_of_another_language_is_refused(tmp_path):
    (tmp_path / "t.txt").write_text(
        "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002 \u660e\u5929\u4f1a\u4e0b\u96e8\u3002\n" * 2000
    )
    process = create(tmp_path / "t.txt", tmp_path / "out", "--num_workers=1")
    assert_one_sentence(process, "are unknown, more than --max_unknown_share=0.3: the vocabulary is not of this text")
    assert not list((tmp_path / "out").rglob("*"))


def test_help_needs_neither_tensorflow_nor_a_second():
    process = run("-X", "importtime", SCRIPT, "--help")
    assert process.returncode == 0
    assert "--short_seq_prob" in process.stdout and "default: 0.1" in process.stdout
    assert "tensorflow" not in process.stderr


def start_books(directory, *flags):
    command = [sys.executable, SCRIPT, f"--input_file={BOOKS}/*.txt", f"--spm_model_file={MODEL}",
               f"--output_dir={directory}", "--document_mode=heading", "--sentence_split=prose", *flags]  # fmt: skip
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # a job in the background ignores it
    )


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_an_interrupt_ends_in_one_sentence_and_leaves_nothing_finished(tmp_path):
    process = start_books(tmp_path, "--dupe_factor=100")
    wait_for(lambda: list(tmp_path.glob(".spill/*.records")))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in errors and "Interrupted" in errors
    assert [path.name for path in tmp_path.iterdir()] == [".spill"]


def test_killed_runs_are_finished_with_the_bytes_of_an_uninterrupted_one(tmp_path):
    flags = ["--max_seq_length=64", "--dupe_factor=3", "--num_shards=3", "--eval_fraction=0.1"]
    process = start_books(tmp_path / "whole", *flags)
    process.communicate()
    assert process.returncode == 0
    for units in (0, 1, 2):
        process = start_books(tmp_path / "cut", *flags)
        wait_for(lambda units=units: len(list((tmp_path / "cut").glob(".spill/*.npz"))) > units)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start_books(tmp_path / "cut", *flags)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    names = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert names == sorted(p.relative_to(tmp_path / "cut") for p in (tmp_path / "cut").rglob("*") if p.is_file())
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_ends_in_one_sentence_and_leaves_nothing_finished(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        process = create(f"{BOOKS}/Lewis*.txt", disk / "out", "--document_mode=heading", "--sentence_split=prose")
        assert_one_sentence(process, "the disk is full")
        assert [path.name for path in (disk / "out").iterdir()] == [".spill"]
    finally:
        subprocess.run(["umount", disk], check=True)
