from albert_tf.checkpoints.discovery import HUGGING_FACE, NATIVE, TF1
from albert_tf.settings.conversion import CHECKPOINT_FORMATS, ConvertConfig


def test_the_formats_are_those_that_can_be_found():
    assert CHECKPOINT_FORMATS == (NATIVE, TF1, HUGGING_FACE)


def test_optimizer_moments_are_converted_only_when_asked_for():
    assert not ConvertConfig(source="a", target="b").include_optimizer
