import json
import logging

import checks
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.training.kept_checkpoints import RunCheckpoints, saved_steps
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule


class Saved:
    """A model with an optimizer whose slots are filled, and its checkpoints."""

    def __init__(self, directory, *, seed, keep=2, writes=True, **changes):
        model = AlbertWithHeads(checks.tiny_config(**changes))
        checks.randomize(model, seed=seed)
        self.variables = named_variables(model)
        schedule = LearningRateSchedule(1.0, num_train_steps=9, num_warmup_steps=0)
        self.optimizer = AlbertOptimizer("lamb", self.variables, schedule=schedule)
        for index, slot in enumerate(self.optimizer.slots.values()):
            slot.assign(tf.fill(slot.shape, float(seed + index)))
        self.step = tf.Variable(seed, dtype=tf.int64)
        self.checkpoints = RunCheckpoints(
            directory,
            variables=self.variables,
            optimizer=self.optimizer,
            state={"global_step": self.step},
            keep=keep,
            writes=writes,
        )

    def save(self, *steps):
        for step in steps:
            self.step.assign(step)
            self.checkpoints.save()


def test_weights_slots_and_step_come_back(tmp_path):
    saved, other = Saved(tmp_path, seed=1), Saved(tmp_path, seed=2)
    saved.checkpoints.save()
    assert other.checkpoints.restore_latest()
    assert int(other.step) == 1
    for name, value in saved.variables.items():
        assert np.array_equal(other.variables[name], value), name
    for name, value in saved.optimizer.slots.items():
        assert np.array_equal(other.optimizer.slots[name], value), name


def test_an_empty_directory_restores_nothing(tmp_path):
    assert not Saved(tmp_path, seed=1).checkpoints.restore_latest()


def test_the_newest_n_are_kept_and_named_in_the_file_that_other_readers_use(tmp_path):
    Saved(tmp_path, seed=0).save(5, 6, 6, 70)
    assert saved_steps(tmp_path) == [6, 70]
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-70")
    assert str(tmp_path) not in (tmp_path / "checkpoint").read_text()  # the directory can be moved


def test_the_best_by_held_out_loss_is_kept_too(tmp_path):
    saved = Saved(tmp_path, seed=0, keep=1)
    for step, loss in [(1, 3.0), (2, 2.0), (3, 2.5), (4, 2.4)]:
        saved.save(step)
        saved.checkpoints.note_evaluation(loss, held_out="all")
    assert saved_steps(tmp_path) == [2, 4]
    assert saved.checkpoints.best() == (2, 2.0)
    saved.save(5)
    saved.checkpoints.note_evaluation(1.0, held_out="all")
    saved.save(6)
    assert saved_steps(tmp_path) == [5, 6]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths] == ["5", "6"]
    saved.checkpoints.note_evaluation(0.5, held_out="others", is_done=True)
    assert saved.checkpoints.best() == saved.checkpoints.best(held_out="all") == (5, 1.0)
    assert saved.checkpoints.best(held_out="others") is None
    saved.checkpoints.note_evaluation(1.5, held_out="others")
    assert saved.checkpoints.best() == (6, 1.5)


def test_the_note_of_the_best_follows_a_step_that_is_made_again(tmp_path):
    saved = Saved(tmp_path, seed=0, keep=5)
    saved.save(3, 6)
    saved.checkpoints.note_evaluation(2.0, held_out="all")
    assert saved.checkpoints.restore_latest(doubted=6) and int(saved.step) == 3
    assert saved.checkpoints.best() is None
    saved.save(6)  # on other data
    saved.checkpoints.note_evaluation(2.5, held_out="all")
    assert saved.checkpoints.best() == (6, 2.5)


def test_a_doubted_checkpoint_is_restored_where_it_is_the_only_one(tmp_path):
    saved = Saved(tmp_path, seed=0)
    saved.save(3)
    assert saved.checkpoints.restore_latest(doubted=3) and int(saved.step) == 3
    assert saved_steps(tmp_path) == [3]


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["empty", "half", "one byte less", "one bit", "gone"])
def test_a_damaged_newest_checkpoint_is_set_aside_for_the_one_before(tmp_path, caplog, part, damage):
    saved = Saved(tmp_path, seed=1, keep=3)
    saved.save(3, 6)
    file = tmp_path / f"model.ckpt-6.{part}"
    content = file.read_bytes()
    flipped = bytes([content[len(content) // 2] ^ 1])
    file.write_bytes({
        "empty": b"", "half": content[: len(content) // 2], "one byte less": content[:-1], "gone": b"",
        "one bit": content[: len(content) // 2] + flipped + content[len(content) // 2 + 1 :],
    }[damage])  # fmt: skip
    if damage == "gone":
        file.unlink()
    other = Saved(tmp_path, seed=2, keep=3)
    with caplog.at_level(logging.WARNING):
        assert other.checkpoints.restore_latest()
    assert int(other.step) == 3
    assert all(np.array_equal(other.variables[name], value) for name, value in saved.variables.items())
    if (part, damage) != ("index", "gone"):  # which is how a save that was killed looks
        assert "model.ckpt-6 is damaged" in caplog.text and list(tmp_path.glob("damaged-model.ckpt-6.*"))
    assert not list(tmp_path.glob("model.ckpt-6*"))
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    other.save(4)
    assert saved_steps(tmp_path) == [3, 4]


def test_when_all_are_damaged_nothing_starts_again(tmp_path):
    Saved(tmp_path, seed=1).save(3)
    (tmp_path / "model.ckpt-3.data-00000-of-00001").write_bytes(b"")
    with pytest.raises(UserError, match="all checkpoints in .* are damaged"):
        Saved(tmp_path, seed=1).checkpoints.restore_latest()


def test_the_remains_of_a_killed_save_are_removed(tmp_path):
    Saved(tmp_path, seed=1).save(3)
    (tmp_path / "model.ckpt-9.data-00000-of-00001").write_bytes(b"half of it")
    (tmp_path / "model.ckpt-9_temp").mkdir()
    (tmp_path / "model.ckpt-9_temp" / "part-00000-of-00001.data-00000-of-00001").touch()
    other = Saved(tmp_path, seed=2)
    assert other.checkpoints.restore_latest() and int(other.step) == 3
    assert not list(tmp_path.glob("model.ckpt-9*"))


def test_another_model_is_refused(tmp_path):
    Saved(tmp_path, seed=1).checkpoints.save()
    for changes in ({"parameter_sharing": "none"}, {"hidden_size": 32}):
        with pytest.raises(UserError, match="does not fit this model"):
            Saved(tmp_path, seed=1, **changes).checkpoints.restore_latest()


def test_only_the_chief_writes(tmp_path):
    worker = Saved(tmp_path, seed=1, writes=False)
    worker.save(3)
    worker.checkpoints.note_evaluation(1.0, held_out="all")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_leaves_the_checkpoint_before(tmp_path):
    saved = Saved(tmp_path, seed=1)
    saved.save(3)
    (tmp_path / "model.ckpt-4_temp").write_text("in the way, as a full disk would be")
    with pytest.raises(UserError, match="model.ckpt-4 could not be written .* is the disk full"):
        saved.save(4)
    assert saved_steps(tmp_path) == [3]
    assert json.loads(json.dumps(saved.checkpoints.newest_step())) == 3
