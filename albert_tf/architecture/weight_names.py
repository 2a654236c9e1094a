"""The names of ALBERT's variables: where each stands in our model, and what TF1 and Hugging Face call it.

One table serves checkpoints, conversion, decay exclusion and readers. Paths are attribute paths from `AlbertWithHeads`,
with `attention(g,k)` and `feed_forward(g,k)` for the layers of a `sharing.BlockIndex`. Shapes and values are TF1's;
Hugging Face stores the kernels of dense layers transposed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from albert_tf.architecture import sharing
from albert_tf.architecture.config import AlbertConfig

# Names of heads.
MASKED_LM, SENTENCE_ORDER = "masked_lm", "sentence_order"
SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION = "sequence_classification", "token_classification"
MULTIPLE_CHOICE = "multiple_choice"
QUESTION_ANSWERING, QUESTION_ANSWERING_V2 = "question_answering", "question_answering_v2"

# One linear layer, `output_weights` and `output_bias` in TF1, `classifier` in Hugging Face; a model has one at most.
LABEL_HEADS = (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, MULTIPLE_CHOICE)
HEADS = (MASKED_LM, SENTENCE_ORDER, *LABEL_HEADS, QUESTION_ANSWERING, QUESTION_ANSWERING_V2)

OUTPUT_WEIGHTS = "output_weights"  # TF1 name of the label head's kernel, [num_labels, hidden]

_HEADS_BY_PREFIX = {
    "cls/predictions/": MASKED_LM,
    "cls/seq_relationship/": SENTENCE_ORDER,
    "cls/squad/": QUESTION_ANSWERING,
    "start_logits/": QUESTION_ANSWERING_V2,
    "end_logits/": QUESTION_ANSWERING_V2,
    "answer_class/": QUESTION_ANSWERING_V2,
}


class Architecture(NamedTuple):
    """A model class of Hugging Face: its heads, and whether it has a pooler."""

    heads: tuple[str, ...]
    has_pooler: bool


ARCHITECTURES = {
    "AlbertModel": Architecture((), True),
    "AlbertForPreTraining": Architecture((MASKED_LM, SENTENCE_ORDER), True),
    "AlbertForMaskedLM": Architecture((MASKED_LM,), False),
    "AlbertForSequenceClassification": Architecture((SEQUENCE_CLASSIFICATION,), True),
    "AlbertForTokenClassification": Architecture((TOKEN_CLASSIFICATION,), False),
    "AlbertForMultipleChoice": Architecture((MULTIPLE_CHOICE,), True),
    "AlbertForQuestionAnswering": Architecture((QUESTION_ANSWERING,), False),
}


class WeightName(NamedTuple):
    """One variable: its attribute path in our model, its names, its TF1 shape, and whether Hugging Face transposes it.

    `hf_name` is None where Hugging Face has no such variable.
    """

    path: str
    tf1_name: str
    hf_name: str | None
    shape: tuple[int, ...]
    transposed: bool = False


def weight_names(
    config: AlbertConfig, heads: Sequence[str], *, num_labels: int | None = None, pooler: bool = True
) -> list[WeightName]:
    """Returns every variable of `AlbertWithHeads` with these arguments, once.

    `num_labels` is the number of rows of the label head.
    """
    embedding, hidden = config.embedding_size, config.hidden_size
    names = []
    for table, rows in (
        ("word_embeddings", config.vocab_size),
        ("token_type_embeddings", config.type_vocab_size),
        ("position_embeddings", config.max_position_embeddings),
    ):
        hf_name = f"albert.embeddings.{table}.weight"
        names.append(WeightName(f"encoder.embeddings.{table}", f"bert/embeddings/{table}", hf_name, (rows, embedding)))
    names += _layer_norm(
        "encoder.embeddings.layer_norm", "bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm", embedding
    )
    if embedding != hidden:
        scope = "encoder/embedding_hidden_mapping_in"
        names += _dense(
            "encoder.embeddings.projection", f"bert/{scope}", "albert." + scope.replace("/", "."), (embedding, hidden)
        )
    for index in sorted({weights.attention for weights in config.sharing_plan}):
        names += _attention(index, hidden)
    for index in sorted({weights.feed_forward for weights in config.sharing_plan}):
        names += _feed_forward(index, hidden, config.intermediate_size)
    if pooler:
        names += _dense("encoder.pooler", "bert/pooler/dense", "albert.pooler", (hidden, hidden))
    for head in HEADS:
        if head in heads:
            names += _head(head, config, num_labels)
    return names


def heads_of(tf1_names: Iterable[str], *, label_head: str = SEQUENCE_CLASSIFICATION) -> tuple[str, ...]:
    """Returns the heads that variables of these TF1 names belong to; `output_weights` is that of `label_head`."""
    prefixes = {**_HEADS_BY_PREFIX, "output_": label_head}
    found = {head for name in tf1_names for prefix, head in prefixes.items() if name.startswith(prefix)}
    return tuple(head for head in HEADS if head in found)


def _head(head: str, config: AlbertConfig, num_labels: int | None) -> list[WeightName]:
    embedding, hidden = config.embedding_size, config.hidden_size
    if head == MASKED_LM:
        transform, hf_scope = "cls/predictions/transform", "predictions"
        return [
            *_dense("masked_lm.transform", f"{transform}/dense", f"{hf_scope}.dense", (hidden, embedding)),
            *_layer_norm("masked_lm.layer_norm", f"{transform}/LayerNorm", f"{hf_scope}.LayerNorm", embedding),
            WeightName(
                "masked_lm.output_bias", "cls/predictions/output_bias", "predictions.bias", (config.vocab_size,)
            ),
        ]
    if head == QUESTION_ANSWERING_V2:
        return _question_answering_v2(hidden)
    tf1_scope, hf_scope, rows = {
        SENTENCE_ORDER: ("cls/seq_relationship/", "sop_classifier.classifier", 2),
        QUESTION_ANSWERING: ("cls/squad/", "qa_outputs", 2),
    }.get(head, ("", "classifier", num_labels or 1))
    return [
        WeightName(f"{head}.output_weights", f"{tf1_scope}output_weights", f"{hf_scope}.weight", (rows, hidden)),
        WeightName(f"{head}.output_bias", f"{tf1_scope}output_bias", f"{hf_scope}.bias", (rows,)),
    ]


def _question_answering_v2(hidden: int) -> list[WeightName]:
    """The head of TF1 squad_utils.v2_model_fn_builder, which Hugging Face's ALBERT does not have."""
    path = QUESTION_ANSWERING_V2
    return [
        *_dense(f"{path}.start", "start_logits/dense", None, (hidden, 1)),
        *_dense(f"{path}.end_hidden", "end_logits/dense_0", None, (2 * hidden, hidden)),
        *_layer_norm(f"{path}.end_layer_norm", "end_logits/LayerNorm", None, hidden),
        *_dense(f"{path}.end", "end_logits/dense_1", None, (hidden, 1)),
        *_dense(f"{path}.answer_hidden", "answer_class/dense_0", None, (2 * hidden, hidden)),
        WeightName(f"{path}.answer.kernel", "answer_class/dense_1/kernel", None, (hidden, 1)),
    ]


def _dense(path: str, tf1: str, hf: str | None, shape: tuple[int, int]) -> list[WeightName]:
    return [
        WeightName(f"{path}.kernel", f"{tf1}/kernel", hf and f"{hf}.weight", shape, transposed=True),
        WeightName(f"{path}.bias", f"{tf1}/bias", hf and f"{hf}.bias", shape[1:]),
    ]


def _layer_norm(path: str, tf1: str, hf: str | None, size: int) -> list[WeightName]:
    return [
        WeightName(f"{path}.gamma", f"{tf1}/gamma", hf and f"{hf}.weight", (size,)),
        WeightName(f"{path}.beta", f"{tf1}/beta", hf and f"{hf}.bias", (size,)),
    ]


def _attention(index: sharing.BlockIndex, hidden: int) -> list[WeightName]:
    path, tf1, hf = _scopes("attention", index)
    names = []
    for part in ("query", "key", "value"):
        names += _dense(f"{path}.{part}", f"{tf1}/attention_1/self/{part}", f"{hf}.attention.{part}", (hidden, hidden))
    names += _dense(
        f"{path}.output_dense", f"{tf1}/attention_1/output/dense", f"{hf}.attention.dense", (hidden, hidden)
    )
    return names + _layer_norm(f"{path}.layer_norm", f"{tf1}/LayerNorm", f"{hf}.attention.LayerNorm", hidden)


def _feed_forward(index: sharing.BlockIndex, hidden: int, intermediate: int) -> list[WeightName]:
    path, tf1, hf = _scopes("feed_forward", index)
    # The second dense layer is nested under `intermediate` in TF1 too.
    return [
        *_dense(f"{path}.intermediate_dense", f"{tf1}/ffn_1/intermediate/dense", f"{hf}.ffn", (hidden, intermediate)),
        *_dense(
            f"{path}.output_dense",
            f"{tf1}/ffn_1/intermediate/output/dense",
            f"{hf}.ffn_output",
            (intermediate, hidden),
        ),
        *_layer_norm(f"{path}.layer_norm", f"{tf1}/LayerNorm_1", f"{hf}.full_layer_layer_norm", hidden),
    ]


def _scopes(part: str, index: sharing.BlockIndex) -> tuple[str, str, str]:
    """Returns path, TF1 scope and Hugging Face scope of one part of a block."""
    return (
        f"encoder.{part}({index.group},{index.inner})",
        f"bert/encoder/transformer/group_{index.group}/inner_group_{index.inner}",
        f"albert.encoder.albert_layer_groups.{index.group}.albert_layers.{index.inner}",
    )
