import shutil

import checks
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf import checkpoints
from albert_tf.errors import UserError
from albert_tf.heads import AlbertWithHeads
from albert_tf.optimizers import AlbertOptimizer, LearningRateSchedule

PLAIN = GOLDEN / "tf1_checkpoint" / "plain"


def make(directory, *, seed, keep=2, **changes):
    model = AlbertWithHeads(checks.tiny_config(**changes))
    checks.randomize(model, seed=seed)
    variables = checkpoints.named_variables(model)
    optimizer = AlbertOptimizer(
        "lamb", variables, schedule=LearningRateSchedule(1.0, num_train_steps=9, num_warmup_steps=0)
    )
    for index, slot in enumerate(optimizer.slots.values()):
        slot.assign(tf.fill(slot.shape, float(seed + index)))
    step = tf.Variable(seed, dtype=tf.int64)
    run = checkpoints.RunCheckpoints(directory, variables=variables, optimizer=optimizer, global_step=step, keep=keep)
    return run, variables, optimizer, step


def test_weights_slots_and_step_come_back(tmp_path):
    run, variables, optimizer, _ = make(tmp_path, seed=1)
    run.save()
    other, restored, restored_optimizer, step = make(tmp_path, seed=2)
    assert other.restore_latest()
    assert int(step) == 1
    for name in variables:
        assert np.array_equal(restored[name], variables[name]), name
    for name in optimizer.slots:
        assert np.array_equal(restored_optimizer.slots[name], optimizer.slots[name]), name


def test_an_empty_directory_restores_nothing(tmp_path):
    assert not make(tmp_path, seed=1)[0].restore_latest()


def test_a_lost_state_file_does_not_restart_the_run(tmp_path):
    make(tmp_path, seed=1)[0].save()
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(UserError, match="has checkpoints, but its file 'checkpoint'"):
        make(tmp_path, seed=1)[0].restore_latest()


def test_the_newest_n_are_kept(tmp_path):
    run, _, _, step = make(tmp_path, seed=0, keep=2)
    for number in (5, 6, 7):
        step.assign(number)
        run.save()
        run.save()
    assert sorted(p.name for p in tmp_path.glob("*.index")) == ["model.ckpt-6.index", "model.ckpt-7.index"]


def test_another_model_is_refused(tmp_path):
    make(tmp_path, seed=1)[0].save()
    with pytest.raises(UserError, match="does not fit this model"):
        make(tmp_path, seed=1, parameter_sharing="none")[0].restore_latest()
    with pytest.raises(UserError, match="does not fit this model"):
        make(tmp_path, seed=1, hidden_size=32)[0].restore_latest()


def test_native_weights_are_read_by_tf1_name(tmp_path):
    run, variables, _, _ = make(tmp_path, seed=1)
    run.save()
    weights = checkpoints.read_weights(str(tmp_path))
    assert set(weights) == set(variables)
    assert all(np.array_equal(weights[name], variables[name]) for name in weights)


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


def test_run_files_hold_what_a_run_needs_and_refuse_another_run(tmp_path, english_tokenizer):
    config = checks.tiny_config()
    write = lambda **changes: checkpoints.write_run_files(  # noqa: E731
        tmp_path, **{"config": config, "run_config": {"learning_rate": 1.0}, "tokenizer": english_tokenizer, **changes}
    )
    write(run_config={"learning_rate": 5.0})
    write()  # without a checkpoint nothing has begun, and anything may change
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"albert_config.json", "run_config.json", "environment.json", "tokenizer"}
    make(tmp_path, seed=1)[0].save()
    write()
    with pytest.raises(UserError, match="started with learning_rate=1.0 and is now asked for 2.0"):
        write(run_config={"learning_rate": 2.0})
    with pytest.raises(UserError, match="started with num_hidden_layers=3 and is now asked for 4"):
        write(config=checks.tiny_config(num_hidden_layers=4))
