import socket

import pytest

from albert_tf.errors import UserError
from albert_tf.serving.local_server import _bound_socket
from albert_tf.settings.serving import ServeConfig


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ServeConfig(saved_model_dir="a", rest_port=taken.getsockname()[1])
        with pytest.raises(UserError, match=r"--rest_port=\d+ of 127.0.0.1 is not free"), _bound_socket(config):
            pass


def test_an_address_of_another_machine_is_named():
    config = ServeConfig(saved_model_dir="a", host="192.0.2.1", rest_port=0)
    with pytest.raises(UserError, match="--host=192.0.2.1 is no address of this machine"), _bound_socket(config):
        pass
