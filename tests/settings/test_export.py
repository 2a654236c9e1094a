import pytest

from albert_tf.errors import UserError
from albert_tf.settings.export import ExportConfig


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExportConfig(checkpoint="a", output_dir="b", version=-1), "--version must be at least 0"),
        (lambda: ExportConfig(checkpoint="a"), "--output_dir must be given without --check"),
        (lambda: ExportConfig(check=True, checkpoint="a"), "--saved_model_dir must be given with --check"),
    ],
)
def test_values_out_of_bounds_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_exports_are_float32_by_default():
    assert ExportConfig(checkpoint="a", output_dir="b").precision == "float32"
