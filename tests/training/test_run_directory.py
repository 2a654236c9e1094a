import json
import logging

import checks
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.training import run_directory


def test_a_run_with_a_checkpoint_is_continued_with_its_own_settings_only(tmp_path, english_tokenizer, alice_vocab):
    from albert_tf.text.tokenizer_files import load_tokenizer

    settings = {"config": checks.tiny_config(), "run_config": {"learning_rate": 1.0, "precision": "float32"},
                "tokenizer": english_tokenizer}  # fmt: skip
    run_directory.write_run_files(tmp_path, **settings)
    assert {path.name for path in tmp_path.iterdir()} == {"albert_config.json", "run_config.json", "tokenizer"}
    other = {**settings, "run_config": {**settings["run_config"], "learning_rate": 2.0}}
    run_directory.check_same_run(tmp_path, **other)  # without a checkpoint nothing has begun
    assert run_directory.recorded_run_config(tmp_path) is None
    (tmp_path / "model.ckpt-1.index").touch()
    run_directory.check_same_run(tmp_path, **settings)
    assert run_directory.recorded_run_config(tmp_path) == settings["run_config"]
    for changes, message in [
        (other, "started with learning_rate=1.0 and is now asked for 2.0"),
        ({"config": checks.tiny_config(num_hidden_layers=4)}, "started with num_hidden_layers=3 and is now asked for"),
        ({"tokenizer": load_tokenizer(alice_vocab)}, "started with a different tokenizer"),
    ]:
        with pytest.raises(UserError, match=message):
            run_directory.check_same_run(tmp_path, **{**settings, **changes})
        if changes is not other:  # of an evaluation, model and tokenizer count
            with pytest.raises(UserError, match=message):
                run_directory.check_same_run(tmp_path, **{**settings, **changes, "run_config": None})
    run_directory.check_same_run(tmp_path, **{**settings, "run_config": None})


def test_another_environment_is_said_and_listed(tmp_path, caplog, monkeypatch):
    def note(step, **computation):
        run_directory.note_environment(
            tmp_path, step=step, strategy=tf.distribute.get_strategy(), computation={"remat": False, **computation}
        )

    entries = lambda: json.loads((tmp_path / "environment.json").read_text())  # noqa: E731
    with caplog.at_level(logging.WARNING):
        note(0)
        note(5)
        assert not caplog.text and [entry["from_step"] for entry in entries()] == [0]
        monkeypatch.setattr(run_directory, "_processor_name", lambda: "Another 9000")
        note(8)
    assert "From step 8 on this run is not bit for bit" in caplog.text and "Another 9000 now" in caplog.text
    assert [entry["from_step"] for entry in entries()] == [0, 8]
    with caplog.at_level(logging.WARNING):
        note(9, remat=True)
    assert "From step 9 on" in caplog.text and "remat: False before, True now" in caplog.text
    note(0)  # a new run
    assert [entry["from_step"] for entry in entries()] == [0]
