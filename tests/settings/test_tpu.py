import pytest

from albert_tf.errors import UserError
from albert_tf.settings.tpu import CHIPS, TpuAotConfig
from albert_tf.tpu.tpu_compiler import TOPOLOGIES


def test_the_chips_are_those_that_the_compiler_has_a_topology_of():
    assert tuple(TOPOLOGIES) == CHIPS


def test_an_unknown_chip_is_refused():
    with pytest.raises(UserError, match="--chips must be among v3, v4, v5e, v5p, v6e; received 'v9'"):
        TpuAotConfig(albert_config_file="a", chips="v9")
