import checks
import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.native import point_to, write_checkpoint
from albert_tf.model.heads import AlbertWithHeads


def test_weights_slots_and_step_are_read_back_as_they_were_written(tmp_path):
    model = AlbertWithHeads(checks.tiny_config())
    weights = checks.randomize(model, seed=1)
    slots = {f"{name}/{moment}": value + 1.0 for name, value in weights.items() for moment in ("adam_m", "adam_v")}
    tensors = {**weights, **slots, "global_step": np.int64(9)}
    write_checkpoint(tmp_path, list(tensors), tensors=tensors.items(), step=9)
    model.config.save(tmp_path / "albert_config.json")
    read = checks.read_weights(tmp_path)
    assert set(read) == set(weights)
    assert all(np.array_equal(read[name], weights[name]) for name in weights)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-9")


def test_the_newest_checkpoint_is_named_last(tmp_path):
    point_to(tmp_path, ["model.ckpt-1", "model.ckpt-2"])
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == str(tmp_path / "model.ckpt-2")
    assert [path[-1] for path in state.all_model_checkpoint_paths] == ["1", "2"]
