from commands import assert_one_sentence, run
from conftest import GOLDEN

MODULE = ["-m", "albert_tf.convert_checkpoint"]


def test_the_command_converts_and_prints_a_table(tmp_path):
    process = run(*MODULE, f"--source={GOLDEN / 'tf1_checkpoint' / 'plain'}", f"--target={tmp_path / 'hf'}",
                  "--target_format=hf")  # fmt: skip
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    row = next(line for line in lines if line.startswith("bert/pooler/dense/kernel"))
    assert row.split() == ["bert/pooler/dense/kernel", "albert.pooler.weight", "32x32", "transposed"]
    assert "read 32, mapped 32, transposed 9, missing 0, unused 0, left out 1 (global_step)" in lines
    assert (tmp_path / "hf" / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_bad_input_ends_in_one_sentence_and_leaves_nothing(tmp_path):
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"x")
    process = run(*MODULE, f"--source={tmp_path / 'pickle'}", f"--target={tmp_path / 'target'}")
    assert_one_sentence(process, "is a pickle", "save_pretrained")
    assert [path.name for path in tmp_path.iterdir()] == ["pickle"]
