import socket

import pytest

from albert_tf.errors import UserError
from albert_tf.local_server import _bound_socket, _version_directory
from albert_tf.serving_config import ServeConfig


def test_the_highest_version_is_served_unless_one_is_named(tmp_path):
    for version in ("9", "10", "latest"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    (tmp_path / "11").mkdir()  # unfinished: there is nothing in it
    assert _version_directory(tmp_path).name == "10"
    assert _version_directory(tmp_path / "9").name == "9"
    with pytest.raises(UserError, match="is not an export and holds none"):
        _version_directory(tmp_path / "11")


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ServeConfig(saved_model_dir="a", rest_port=taken.getsockname()[1])
        with pytest.raises(UserError, match=r"--rest_port=\d+ of 127.0.0.1 is not free"), _bound_socket(config):
            pass
