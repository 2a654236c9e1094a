import pytest

from albert_tf.errors import UserError
from albert_tf.saved_model.export_directory import version_directory


def test_the_highest_version_is_used_unless_one_is_named(tmp_path):
    for version in ("9", "10", "latest"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    (tmp_path / "11").mkdir()  # unfinished: there is nothing in it
    assert version_directory(tmp_path).name == "10"
    assert version_directory(tmp_path / "9").name == "9"
    with pytest.raises(UserError, match="is not an export and holds none"):
        version_directory(tmp_path / "11")
