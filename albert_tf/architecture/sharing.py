"""Cross-layer parameter sharing as data: which weights each layer of the encoder uses (paper section 3.1, Table 4)."""

from typing import NamedTuple

from albert_tf.errors import UserError

SHARING_MODES = ("all", "attention", "ffn", "none")


class BlockIndex(NamedTuple):
    """Names one set of weights: `group_<group>/inner_group_<inner>` in the original's variable names."""

    group: int
    inner: int


class LayerWeights(NamedTuple):
    """The weights that one executed block uses: its attention's and its feed-forward network's."""

    attention: BlockIndex
    feed_forward: BlockIndex


def group_of_layer(layer: int, *, num_layers: int, num_groups: int) -> int:
    """Returns the group of `layer` as TF1 modeling.py computes it, floating-point rounding included."""
    return int(layer / num_layers * num_groups)


def sharing_plan(num_layers: int, *, mode: str, num_groups: int, inner_group_num: int) -> tuple[LayerWeights, ...]:
    """Returns the weights of every executed block in order; there are `num_layers * inner_group_num` of them.

    `all` shares within each of `num_groups` groups (the original); `attention` and `ffn` share only that part and
    give each layer its own other part; `none` gives each layer its own weights (a BERT with factorised embeddings).
    """
    if mode not in SHARING_MODES:
        raise UserError(f"`parameter_sharing` must be one of {', '.join(SHARING_MODES)}; received {mode!r}")
    if num_groups > num_layers:
        raise UserError(
            f"`num_hidden_groups` may not exceed `num_hidden_layers`; received {num_groups} and {num_layers}"
        )
    if mode == "none" and num_groups != 1:
        raise UserError(f"`num_hidden_groups` must be 1 when nothing is shared; received {num_groups}")
    plan = []
    for layer in range(num_layers):
        shared = group_of_layer(layer, num_layers=num_layers, num_groups=num_groups)
        attention_group = shared if mode in ("all", "attention") else layer
        feed_forward_group = shared if mode in ("all", "ffn") else layer
        for inner in range(inner_group_num):
            plan.append(LayerWeights(BlockIndex(attention_group, inner), BlockIndex(feed_forward_group, inner)))
    return tuple(plan)
