import shutil

import checks
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf import checkpoints
from albert_tf.errors import UserError
from albert_tf.heads import AlbertWithHeads

PLAIN = GOLDEN / "tf1_checkpoint" / "plain"


def test_native_weights_are_read_by_tf1_name(tmp_path):
    model = AlbertWithHeads(checks.tiny_config())
    written = checks.randomize(model, seed=1)
    tf.train.Checkpoint(weights=checkpoints.named_variables(model)).write(str(tmp_path / "model.ckpt-7"))
    weights = checkpoints.read_weights(str(tmp_path))
    assert set(weights) == set(written)
    assert all(np.array_equal(weights[name], written[name]) for name in weights)


def test_tf1_weights_are_read_without_slots(tmp_path):
    weights = checkpoints.read_weights(str(GOLDEN / "tf1_checkpoint" / "groups2_slots"))
    assert "bert/pooler/dense/kernel" in weights
    assert not [name for name in weights if name.endswith(("adam_m", "global_step"))]


@pytest.mark.parametrize("form", ["directory", "prefix", "index file"])
def test_a_checkpoint_is_found_by_any_of_its_names(form):
    path = {"directory": PLAIN, "prefix": PLAIN / "model.ckpt-best", "index file": PLAIN / "model.ckpt-best.index"}[
        form
    ]
    assert checkpoints.checkpoint_prefix(str(path)) == str(PLAIN / "model.ckpt-best")


def test_missing_and_ambiguous_checkpoints_are_refused(tmp_path):
    for path, message in [("", "is empty"), ("none", "does not exist"), (str(tmp_path), r"no \*.index file")]:
        with pytest.raises(UserError, match=message):
            checkpoints.checkpoint_prefix(path)
    for name in ("a", "b"):
        for file in PLAIN.glob("model.ckpt-best.*"):
            shutil.copy(file, tmp_path / file.name.replace("model.ckpt-best", name))
    with pytest.raises(UserError, match="holds 2 of them; name one"):
        checkpoints.checkpoint_prefix(str(tmp_path))


def test_a_partial_or_misshapen_load_is_an_error_and_changes_nothing():
    model = AlbertWithHeads(checks.tiny_config())
    weights = checks.randomize(model, seed=3)
    variables = checkpoints.named_variables(model)
    partial = {name: value for name, value in weights.items() if "pooler" not in name}
    with pytest.raises(UserError, match="lacks 2 of the model's 32 variables, among them bert/pooler/dense/kernel"):
        checkpoints.assign_weights(variables, partial, source="x")
    misshapen = {name: value * 0 for name, value in weights.items()}
    misshapen["bert/pooler/dense/bias"] = np.zeros(5, np.float32)
    with pytest.raises(UserError, match=r"bert/pooler/dense/bias has shape \[5\], .* \[16\]"):
        checkpoints.assign_weights(variables, misshapen, source="x")
    assert all(np.array_equal(variables[name], weights[name]) for name in weights)


def test_a_damaged_checkpoint_is_a_user_error(tmp_path):
    for file in PLAIN.glob("model.ckpt-best.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read"):
        checkpoints.read_weights(str(tmp_path))
