import checks
import numpy as np
import tensorflow as tf

from albert_tf.model import variables
from albert_tf.model.heads import AlbertWithHeads


def test_native_weights_are_read_by_tf1_name(tmp_path):
    model = AlbertWithHeads(checks.tiny_config())
    written = checks.randomize(model, seed=1)
    tf.train.Checkpoint(weights=variables.named_variables(model)).write(str(tmp_path / "model.ckpt-7"))
    model.config.save(tmp_path / "albert_config.json")
    weights = checks.read_weights(tmp_path)
    assert set(weights) == set(written)
    assert all(np.array_equal(weights[name], written[name]) for name in weights)
