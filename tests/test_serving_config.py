import dataclasses

import pytest

from albert_tf.errors import UserError
from albert_tf.serving_config import ExportConfig, ServeConfig


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExportConfig(checkpoint="a", output_dir="b", version=-1), "--version must be at least 0"),
        (lambda: ExportConfig(checkpoint="a"), "--output_dir must be given without --check"),
        (lambda: ExportConfig(check=True, checkpoint="a"), "--saved_model_dir must be given with --check"),
        (lambda: ServeConfig(saved_model_dir="a", port=70_000), "--port must be from 0 to 65535; received 70000"),
        (lambda: ServeConfig(saved_model_dir="a", max_texts=0), "--max_texts must be at least 1"),
    ],
)
def test_values_out_of_bounds_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("config", [ExportConfig, ServeConfig])
def test_every_flag_has_a_help_text(config):
    for field in dataclasses.fields(config):
        assert field.metadata["help"].endswith("."), field.name


def test_exports_are_float32_and_servers_are_for_this_machine_by_default():
    assert ExportConfig(checkpoint="a", output_dir="b").precision == "float32"
    assert ServeConfig(saved_model_dir="a").host == "127.0.0.1"
