"""What is installed from a wheel, as on a machine that has no clone."""

import os
import subprocess
import sys

from conftest import ROOT

COMMANDS = (
    "albert_tf.run_pretraining", "albert_tf.export_saved_model", "albert_tf.convert_checkpoint", "albert_tf.serve",
    "albert_tf.run_inference", "albert_tf.tpu_aot", "albert_tf_data_prep.create_pretraining_data",
    "albert_tf_data_prep.train_vocab", "albert_tf_data_prep.inspect_records",
)  # fmt: skip


def test_a_wheel_holds_every_module_and_its_commands_run_elsewhere(tmp_path):
    source, wheels, site = (tmp_path / name for name in ("source", "wheels", "site"))
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={wheels}", str(source)], check=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--no-deps", f"--target={site}", str(wheel)], check=True)
    for package, folder in (("albert_tf", "albert_tf"), ("albert_tf_data_prep", "data_prep")):
        ours = {path.relative_to(source / folder) for path in (source / folder).rglob("*.py")}
        assert ours == {path.relative_to(site / package) for path in (site / package).rglob("*.py")}
    assert not (site / "data_prep").exists()
    for command in COMMANDS:
        process = subprocess.run(
            [sys.executable, "-m", command, "--help"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0 and "Flags (also from a file" in process.stdout, process.stderr
    where = "import albert_tf, albert_tf_data_prep; print(albert_tf.__file__, albert_tf_data_prep.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert found.count(str(site)) == 2
