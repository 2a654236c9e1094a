import importlib.util
import json

import checks
import pytest
from commands import run

needs_libtpu = pytest.mark.skipif(
    not (importlib.util.find_spec("jax") and importlib.util.find_spec("libtpu")), reason="the extra tpu-aot is absent"
)

# TensorFlow lowers in a fresh process: the lowering needs its own single CPU device.
LOWER = """
import json, sys
from albert_tf.architecture.config import AlbertConfig
from albert_tf.tpu.tpu_fit import StepLowering
lowering = StepLowering(AlbertConfig.from_dict(json.loads(sys.argv[1])), max_seq_length=16, max_predictions_per_seq=3)
open(sys.argv[2], "wb").write(lowering.lower(4))
print(lowering.variable_bytes)
"""


@needs_libtpu
def test_the_training_step_compiles_for_tpus_with_static_shapes_and_updates_in_place(tmp_path):
    from albert_tf.tpu.tpu_compiler import compile_module

    config = {**checks.TINY, "hidden_dropout_prob": 0.1}
    lowered = run("-c", LOWER, json.dumps(config), tmp_path / "step", timeout=600)
    assert lowered.returncode == 0, lowered.stderr
    variable_bytes = int(lowered.stdout.splitlines()[-1])
    for result in compile_module(tmp_path / "step", ["v4", "v5e"], fast=True):
        assert result.fits, result
        assert not result.dynamic_shapes
        assert result.alias_bytes >= variable_bytes
        assert result.output_bytes - result.alias_bytes < 4096
        # 6 operations per weight and token, and the vocabulary's products.
        assert 2e6 < result.flops < 8e6


@needs_libtpu
@pytest.mark.slow
def test_the_command_prints_a_table(tmp_path):
    checks.tiny_config().save(tmp_path / "tiny.json")
    flags = [f"--albert_config_file={tmp_path}/tiny.json", "--chips=v5e", "--max_seq_length=16", "--largest_batch=2",
             "--max_predictions_per_seq=3", "--remat"]  # fmt: skip
    done = run("-m", "albert_tf.tpu_aot", *flags, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("| tiny, remat | v5e | 2 | 0.0")


def test_halving_stops_at_what_fits(monkeypatch):
    from albert_tf.settings.tpu import TpuAotConfig
    from albert_tf.tpu import tpu_fit
    from albert_tf.tpu.tpu_compiler import Compiled

    class Lowering:
        def lower(self, batch_size):
            return str(batch_size).encode()

    largest = {"v3": 2, "v4": 8, "v5e": 0}

    def compile_module(module, chips, *, fast):
        size = int(module.read_bytes())
        return [Compiled(chip=c, out_of_memory=None if size <= largest[c] else f"{size}G of 1G") for c in chips]

    monkeypatch.setattr(tpu_fit, "compile_module", compile_module)
    config = TpuAotConfig(albert_config_file="x", chips="v3,v4,v5e", largest_batch=8)
    found = [(size, r.chip, r.fits, refused) for size, r, refused in tpu_fit.largest_batches(Lowering(), config)]
    assert found == [(8, "v4", True, ""), (2, "v3", True, "4G of 1G"), (1, "v5e", False, "2G of 1G")]
