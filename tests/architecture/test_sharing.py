import json

import pytest
from conftest import GOLDEN

from albert_tf.architecture.sharing import BlockIndex, group_of_layer, sharing_plan


def test_groups_are_the_originals_for_every_recorded_depth():
    mapping = json.loads((GOLDEN / "tf1_checkpoint" / "group_mapping.json").read_text())
    checked = 0
    for layers, by_groups in mapping.items():
        for groups, expected in by_groups.items():
            found = [group_of_layer(i, num_layers=int(layers), num_groups=int(groups)) for i in range(int(layers))]
            assert found == expected
            checked += 1
    assert checked > 50


def test_all_calls_one_set_of_weights_at_every_depth():
    plan = sharing_plan(12, mode="all", num_groups=1, inner_group_num=1)
    assert len(plan) == 12
    assert set(plan) == {(BlockIndex(0, 0), BlockIndex(0, 0))}


def test_inner_blocks_run_in_sequence_within_each_layer():
    plan = sharing_plan(2, mode="all", num_groups=2, inner_group_num=2)
    assert [weights.attention for weights in plan] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(("mode", "attentions", "feed_forwards"), [("attention", 1, 4), ("ffn", 4, 1), ("none", 4, 4)])
def test_modes_share_what_they_say(mode, attentions, feed_forwards):
    plan = sharing_plan(4, mode=mode, num_groups=1, inner_group_num=1)
    assert len({weights.attention for weights in plan}) == attentions
    assert len({weights.feed_forward for weights in plan}) == feed_forwards
