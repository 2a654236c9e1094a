import json

from commands import assert_one_sentence, run

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
