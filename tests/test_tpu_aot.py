import pytest

from albert_tf import tpu_aot


def test_unknown_chips_are_refused(capsys):
    assert tpu_aot.main(["tpu_aot", "--albert_config_file=x.json", "--chips=v4,v9"]) == 1
    assert "--chips must be among v3, v4, v5e, v5p, v6e; received 'v4,v9'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--albert_config_file", "--chips", "--remat"])
def test_help_lists_the_flags(flag, capsys):
    assert tpu_aot.main(["tpu_aot", "--help"]) == 0
    assert flag in capsys.readouterr().out
