import json
import subprocess
import sys

import pytest
from commands import assert_one_sentence, run
from conftest import ROOT

from albert_tf.export_saved_model import main

MODULE = ["-m", "albert_tf.export_saved_model"]


def test_a_checkpoint_is_exported_in_bfloat16(served_checkpoint, tmp_path, capsys):
    flags = [f"--checkpoint={served_checkpoint}", f"--output_dir={tmp_path}", "--precision=bfloat16", "--version=2"]
    assert main(["export_saved_model", *flags, "--max_seq_length=32"]) == 0
    manifest = json.loads((tmp_path / "2" / "assets" / "export_manifest.json").read_text())
    assert (manifest["precision"], manifest["max_seq_length"]) == ("bfloat16", 32)
    assert main(["export_saved_model", *flags]) == 1
    assert "a served version is never changed" in capsys.readouterr().err


def test_an_export_is_checked(exported):
    process = run(*MODULE, "--check", f"--saved_model_dir={exported}")
    assert process.returncode == 0, process.stderr
    assert "21 warm-up requests answered as recorded" in process.stdout


def test_mistakes_end_in_one_sentence(tmp_path):
    process = run(*MODULE, f"--checkpoint={tmp_path}/none", f"--output_dir={tmp_path}/export")
    assert_one_sentence(process, "does not exist")
    assert not (tmp_path / "export").exists()
    assert_one_sentence(run(*MODULE, "--check"), "--saved_model_dir must be given with --check")
    assert_one_sentence(run(*MODULE, "--version=1"), "--checkpoint, --output_dir must be given without --check")


@pytest.mark.slow
def test_two_exports_are_the_same_bytes(served_checkpoint, tmp_path):
    for name in ("a", "b"):
        process = run(*MODULE, f"--checkpoint={served_checkpoint}", f"--output_dir={tmp_path / name}", "--version=1")
        assert process.returncode == 0, process.stderr
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"saved_model.pb", "tf_serving_warmup_requests"}
    for path in files:
        if path.name == "fingerprint.pb":  # holds a random identity, which nothing reads
            continue
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [4, 6, 8, 10, 12])
def test_a_killed_export_leaves_no_version(served_checkpoint, tmp_path, seconds):
    """Whenever it is killed, there is no directory with a number for a name, or a whole one."""
    command = [sys.executable, *MODULE, f"--checkpoint={served_checkpoint}", f"--output_dir={tmp_path}", "--version=1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    if (tmp_path / "1").exists():
        assert run(*MODULE, "--check", f"--saved_model_dir={tmp_path / '1'}").returncode == 0
    assert {path.name for path in tmp_path.iterdir() if path.name.isdigit()} <= {"1"}
