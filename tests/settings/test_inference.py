import pytest

from albert_tf.architecture.weight_names import HEADS
from albert_tf.errors import UserError
from albert_tf.inference.fast_graph import EMBEDDINGS
from albert_tf.settings.inference import ANSWERS, InferenceConfig


def test_one_model_must_be_given():
    for model in ({}, {"checkpoint": "a", "saved_model_dir": "b"}):
        with pytest.raises(UserError, match="one of --checkpoint and --saved_model_dir must be given, and not both"):
            InferenceConfig(input="a.txt", output="b.npy", **model)


def test_answers_are_embeddings_and_heads():
    assert set(EMBEDDINGS) < set(ANSWERS) < {*EMBEDDINGS, *HEADS}
