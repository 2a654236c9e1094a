"""The names of ALBERT's variables: where each stands in our model, and what TF1 calls it.

One table serves checkpoints, decay exclusion and readers. Paths are attribute paths from `AlbertWithHeads`, with
`attention(g,k)` and `feed_forward(g,k)` for the layers of a `sharing.BlockIndex`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from albert_tf import sharing
from albert_tf.config import AlbertConfig

MASKED_LM, SENTENCE_ORDER = "masked_lm", "sentence_order"  # names of heads


class WeightName(NamedTuple):
    """One variable: its attribute path in our model and its TF1 name."""

    path: str
    tf1_name: str


_EMBEDDINGS = (
    ("word_embeddings", "word_embeddings"),
    ("token_type_embeddings", "token_type_embeddings"),
    ("position_embeddings", "position_embeddings"),
    ("layer_norm.gamma", "LayerNorm/gamma"),
    ("layer_norm.beta", "LayerNorm/beta"),
)
_ATTENTION = (
    ("query", "attention_1/self/query"),
    ("key", "attention_1/self/key"),
    ("value", "attention_1/self/value"),
    ("output_dense", "attention_1/output/dense"),
)
_FEED_FORWARD = (
    ("intermediate_dense", "ffn_1/intermediate/dense"),
    ("output_dense", "ffn_1/intermediate/output/dense"),  # nested under `intermediate` in TF1 too
)


def weight_names(config: AlbertConfig, heads: Sequence[str]) -> list[WeightName]:
    """Returns every variable of `AlbertWithHeads(config, heads=heads)`, once."""
    plan = sharing.sharing_plan(
        config.num_hidden_layers,
        mode=config.parameter_sharing,
        num_groups=config.num_hidden_groups,
        inner_group_num=config.inner_group_num,
    )
    names = [WeightName(f"encoder.embeddings.{path}", f"bert/embeddings/{tf1}") for path, tf1 in _EMBEDDINGS]
    if config.embedding_size != config.hidden_size:
        names += _dense("encoder.embeddings.projection", "bert/encoder/embedding_hidden_mapping_in")
    for index in sorted({weights.attention for weights in plan}):
        names += _block_part("attention", index, _ATTENTION, layer_norm="LayerNorm")
    for index in sorted({weights.feed_forward for weights in plan}):
        names += _block_part("feed_forward", index, _FEED_FORWARD, layer_norm="LayerNorm_1")
    names += _dense("encoder.pooler", "bert/pooler/dense")
    if MASKED_LM in heads:
        names += _dense("masked_lm.transform", "cls/predictions/transform/dense")
        names += _layer_norm("masked_lm.layer_norm", "cls/predictions/transform/LayerNorm")
        names.append(WeightName("masked_lm.output_bias", "cls/predictions/output_bias"))
    if SENTENCE_ORDER in heads:
        names.append(WeightName("sentence_order.output_weights", "cls/seq_relationship/output_weights"))
        names.append(WeightName("sentence_order.output_bias", "cls/seq_relationship/output_bias"))
    return names


def _dense(path: str, tf1: str) -> list[WeightName]:
    return [WeightName(f"{path}.kernel", f"{tf1}/kernel"), WeightName(f"{path}.bias", f"{tf1}/bias")]


def _layer_norm(path: str, tf1: str) -> list[WeightName]:
    return [WeightName(f"{path}.gamma", f"{tf1}/gamma"), WeightName(f"{path}.beta", f"{tf1}/beta")]


def _block_part(
    part: str, index: sharing.BlockIndex, table: Sequence[tuple[str, str]], *, layer_norm: str
) -> list[WeightName]:
    path = f"encoder.{part}({index.group},{index.inner})"
    tf1 = f"bert/encoder/transformer/group_{index.group}/inner_group_{index.inner}"
    names = [name for ours, theirs in table for name in _dense(f"{path}.{ours}", f"{tf1}/{theirs}")]
    return names + _layer_norm(f"{path}.layer_norm", f"{tf1}/{layer_norm}")
