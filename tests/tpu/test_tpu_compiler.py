import sys

import pytest

from albert_tf.errors import UserError
from albert_tf.tpu import tpu_compiler


def test_absent_libraries_end_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs jax and libtpu; install the extra: pip install 'albert-tf\[tpu-aot\]'"):
        tpu_compiler.check_installed()


def test_memory_is_arguments_temporaries_and_what_is_not_updated_in_place():
    result = tpu_compiler.Compiled(chip="v4", argument_bytes=100, output_bytes=70, alias_bytes=60, temp_bytes=5)
    assert result.fits and result.needed_bytes == 115


def test_a_compiler_that_ends_is_an_error_of_every_chip_without_answer(tmp_path):
    module = tmp_path / "not.stablehlo"
    module.write_bytes(b"nonsense")
    results = tpu_compiler.compile_module(module, ["v4", "v5e"], fast=True)
    assert [result.chip for result in results] == ["v4", "v5e"]
    assert all(result.error and not result.fits for result in results)


def test_types_with_an_unknown_size_are_found():
    found = tpu_compiler._DYNAMIC_TYPE.findall
    assert not found("%0 = stablehlo.add %a : tensor<2x3xf32>, !x<?>")
    assert found("tensor<?x2xi64, #stablehlo.bounds<128, ?>>") == ["tensor<?x2xi64, #stablehlo.bounds<128, ?>"]
