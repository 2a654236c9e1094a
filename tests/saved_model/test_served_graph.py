import shutil

import pytest

from albert_tf.errors import UserError
from albert_tf.saved_model.served_graph import load_saved_model


def test_a_damaged_export_is_told_before_it_is_served(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "1")
    data = tmp_path / "1" / "variables" / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match="/1 is damaged: it does not load"):
        load_saved_model(tmp_path / "1")
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no protocol buffer")
    with pytest.raises(UserError, match="saved_model.pb is damaged"):
        load_saved_model(tmp_path / "1")
