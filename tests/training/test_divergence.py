import json

import numpy as np
import pytest

from albert_tf.errors import UserError
from albert_tf.training.divergence import MIN_KNOWN, NEWEST, STATE_SIZE, DivergenceGuard


def make(directory, **changes):
    return DivergenceGuard(directory, **{"max_loss_jump": 1.5, "max_rollbacks": 2, "step": 10, **changes})


def first(guard, losses):
    return guard.first_divergence(losses, np.ones(len(losses)))


def test_a_loss_or_gradient_that_is_not_finite_has_diverged(tmp_path):
    assert first(make(tmp_path), [3.0, 3.0, float("nan")])[0] == 2
    assert make(tmp_path).first_divergence([3.0, 3.0], [1.0, float("inf")]).good_steps == 1


def test_a_lasting_jump_has_diverged_and_a_spike_or_a_slow_rise_has_not(tmp_path):
    usual = [3.0] * (MIN_KNOWN + NEWEST)
    spike = [9.0] * (NEWEST // 2 - 1)
    assert first(make(tmp_path), usual + spike + usual) is None
    found = first(make(tmp_path), usual + [9.0] * NEWEST)
    # The median of eight passes 4.5 when four are at 9: (3 + 9) / 2 = 6.
    assert found.good_steps == len(usual) + NEWEST // 2 - 1
    assert "jumped from 3 to 6" in found.reason
    assert first(make(tmp_path), list(np.linspace(3.0, 4.0, 400))) is None
    assert first(make(tmp_path), [0.1] * 60 + [0.3] * 60) is None  # three times, but too small to matter
    assert first(make(tmp_path, max_loss_jump=0.0), usual + [9.0] * 60) is None
    assert first(make(tmp_path), [3.0] * (MIN_KNOWN - 1) + [9.0] * NEWEST) is None  # too little is known


def test_the_rule_does_not_depend_on_the_loops_or_on_a_restart(tmp_path):
    losses = np.random.default_rng(0).normal(4.0, 0.8, 300)
    losses[220:] += 5.0
    whole = first(make(tmp_path), losses)
    assert 220 < whole.good_steps < 240
    for size in (1, 7, 100):
        guard, place = make(tmp_path), 0
        while (found := first(guard, losses[place : place + size])) is None:
            place += size
            state = guard.state()
            assert state.shape == (STATE_SIZE,) and state.dtype == np.float32
            guard = make(tmp_path)
            guard.set_state(state)
        assert (place + found.good_steps, found.reason) == whole


def test_skipped_data_survives_a_restart(tmp_path):
    guard = make(tmp_path)
    assert guard.data_step(10) == 10
    guard.note_rollback(17, reason="x", restored_step=10)
    assert guard.data_step(10) == 17
    guard.note_rollback(15, reason="x", restored_step=10)
    assert guard.data_step(12) == 24
    assert make(tmp_path, step=12).data_step(12) == 24
    # Where the run had to go back further still, what came later is undone; a new run begins afresh.
    assert make(tmp_path, step=9).data_step(9) == 9
    assert [entry["diverged_step"] for entry in json.loads((tmp_path / "rollbacks.json").read_text())] == [17, 15]
    assert make(tmp_path, step=0).data_step(0) == 0


def test_it_ends_with_what_to_try(tmp_path):
    guard = make(tmp_path)
    with pytest.raises(UserError, match="at step 4, before the first checkpoint. Lower --learning_rate or lengthen"):
        guard.check_rollback_allowed(4, reason="the loss has jumped", newest_step=None)
    for step in (17, 15):
        guard.check_rollback_allowed(step, reason="x", newest_step=10)
        guard.note_rollback(step, reason="x", restored_step=10)
    with pytest.raises(UserError, match="at step 19, after as many rollbacks as --max_rollbacks=2 allows; the newest"):
        make(tmp_path).check_rollback_allowed(19, reason="x", newest_step=10)


def test_a_checkpoint_from_which_training_diverges_at_once_twice_is_doubted(tmp_path):
    guard = make(tmp_path)
    assert not guard.doubts_checkpoint(10, diverged_step=11)  # the first time
    guard.note_rollback(17, reason="x", restored_step=10)
    assert guard.doubts_checkpoint(10, diverged_step=10 + NEWEST)
    assert not guard.doubts_checkpoint(10, diverged_step=11 + NEWEST)
    assert not guard.doubts_checkpoint(12, diverged_step=13)  # saved since


def test_going_back_further_skips_all_data_that_was_used(tmp_path):
    guard = make(tmp_path, max_rollbacks=3)
    guard.note_rollback(11, reason="x", restored_step=10)
    guard.note_rollback(13, reason="x", restored_step=10)
    assert guard.data_step(12) == 12 + 1 + 3
    guard.note_rollback(12, reason="x", restored_step=5)  # after batch 16
    for again in (guard, make(tmp_path, step=5), make(tmp_path, step=9)):
        assert again.data_step(5) == 16
    assert make(tmp_path, step=4).data_step(4) == 4


def test_the_rollbacks_of_a_deleted_run_are_not_those_of_a_new_one(tmp_path):
    guard = make(tmp_path)
    guard.note_rollback(14, reason="a jump", restored_step=10)
    assert make(tmp_path, step=10).data_step(10) == 14
    assert make(tmp_path, step=0, writes=False).data_step(10) == 10
    assert (tmp_path / "rollbacks.json").exists()
    assert make(tmp_path, step=0).data_step(10) == 10
    assert make(tmp_path, step=10).data_step(10) == 10  # also after a kill of the new one
