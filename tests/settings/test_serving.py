import pytest

from albert_tf.errors import UserError
from albert_tf.settings.serving import ServeConfig


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 70_000}, "--port must be from 0 to 65535; received 70000"),
        ({"max_texts": 0}, "--max_texts must be at least 1"),
    ],
)
def test_values_out_of_bounds_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        ServeConfig(saved_model_dir="a", **flags)


def test_servers_are_for_this_machine_by_default():
    assert ServeConfig(saved_model_dir="a").host == "127.0.0.1"
