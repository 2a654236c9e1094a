"""Heads on the encoder, and AlbertWithHeads, the only composition of the two.

Sources: TF1 run_pretraining.py:294-361, classifier_utils.py, race_utils.py and squad_utils.py.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import (
    HEADS,
    LABEL_HEADS,
    MASKED_LM,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING_V2,
    SENTENCE_ORDER,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.dropout import Draw, SeededDropout, site_after
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.model.primitives import built_dense, built_layer_norm, truncated_normal

_serializable = keras.saving.register_keras_serializable(package="albert_tf")

_ON_POOLED_OUTPUT = {SENTENCE_ORDER, SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE}

_IMPOSSIBLE = -1e30  # added to the scores of positions that cannot begin or end an answer


class _Head(keras.layers.Layer):
    """What every head has: the configuration, and its place among the heads, which gives its dropout its own site."""

    def __init__(self, config: AlbertConfig, *, place: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.place = place

    def _dense(self, inputs: int, units: int, **kwargs: Any) -> keras.layers.Dense:
        return built_dense(
            inputs, units, initializer_range=self.config.initializer_range, dtype=self.dtype_policy, **kwargs
        )

    def _dropout_site(self) -> int:
        """Returns a site behind those of the encoder."""
        return site_after(len(self.config.sharing_plan)) + self.place

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict(), "place": self.place}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_Head":
        """Builds the head from `get_config`."""
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})


@_serializable
class MaskedLmHead(_Head):
    """Logits of the masked tokens: dense H to E with the hidden activation, LayerNorm, and the word table transposed.

    The word table is the encoder's (tied at width E); the head owns a bias over the vocabulary.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.transform = self._dense(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.layer_norm = built_layer_norm(config.embedding_size, self.dtype_policy)
        self.output_bias = self.add_weight(
            shape=(config.vocab_size,), initializer="zeros", name="output_bias", dtype="float32", autocast=False
        )
        self.built = True

    def call(self, hidden: tf.Tensor, word_embeddings: Any) -> tf.Tensor:
        """Returns float32 logits [batch, positions, vocabulary] of `hidden` [batch, positions, H]."""
        transformed = self.layer_norm(self.activation(self.transform(hidden)))
        table = keras.ops.cast(word_embeddings, transformed.dtype)
        logits = keras.ops.matmul(transformed, keras.ops.transpose(table))
        return keras.ops.cast(logits, "float32") + self.output_bias


@_serializable
class LinearHead(_Head):
    """Logits that are linear in the encoder's output, after dropout. The kernel is stored [outputs, H] as in TF1."""

    def __init__(self, config: AlbertConfig, *, num_outputs: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self._arguments = {"num_outputs": num_outputs, "dropout": dropout}
        self.dropout = SeededDropout(dropout, dtype=self.dtype_policy)
        self.output_weights = self.add_weight(
            shape=(num_outputs, config.hidden_size),
            initializer=truncated_normal(config.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(shape=(num_outputs,), initializer="zeros", name="output_bias")
        self.built = True

    def call(self, encoded: tf.Tensor, *, draw: Draw | None = None, training: bool | None = None) -> tf.Tensor:
        """Returns float32 logits [..., outputs] of `encoded` [..., H]."""
        encoded = self.dropout(encoded, site=self._dropout_site(), draw=draw, training=training)
        logits = keras.ops.matmul(encoded, keras.ops.transpose(self.output_weights)) + self.output_bias
        return keras.ops.cast(logits, "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


@_serializable
class QuestionAnsweringV2Head(_Head):
    """Start, then end given the start, and whether there is an answer (TF1 squad_utils.py, after XLNet).

    Where `start_positions` are given (training) the end is scored given them; elsewhere given each of the best
    `num_starts` starts, with the best `num_ends` ends for each.
    """

    def __init__(self, config: AlbertConfig, *, num_starts: int = 5, num_ends: int = 5, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self._arguments = {"num_starts": num_starts, "num_ends": num_ends}
        hidden = config.hidden_size
        self.start = self._dense(hidden, 1)
        self.end_hidden = self._dense(2 * hidden, hidden, activation="tanh")
        self.end_layer_norm = built_layer_norm(hidden, self.dtype_policy)
        self.end = self._dense(hidden, 1)
        self.answer_hidden = self._dense(2 * hidden, hidden, activation="tanh")
        self.answer_dropout = SeededDropout(config.classifier_dropout_prob, dtype=self.dtype_policy)
        self.answer = self._dense(hidden, 1, use_bias=False)
        self.built = True

    def call(
        self,
        sequence_output: tf.Tensor,
        p_mask: tf.Tensor,
        start_positions: tf.Tensor | None = None,
        *,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        """Scores the positions of `sequence_output` [batch, seq, H]; `p_mask` [batch, seq] is 1 where no answer may be.

        Returns float32 `start_logits` [batch, seq] and `answer_class_logits` [batch], high where there is no answer;
        with `start_positions` int [batch] `end_logits` [batch, seq], without them `start_top_log_probs`,
        `start_top_index` [batch, starts], `end_top_log_probs` and `end_top_index` [batch, starts * ends].
        """
        p_mask = keras.ops.cast(p_mask, "float32")
        start_logits = _masked(keras.ops.squeeze(self.start(sequence_output), -1), p_mask)
        start_probs = keras.ops.cast(keras.ops.softmax(start_logits), sequence_output.dtype)
        expected_start = keras.ops.einsum("bl,blh->bh", start_probs, sequence_output)
        hidden = self.answer_hidden(keras.ops.concatenate([expected_start, sequence_output[:, 0]], axis=-1))
        hidden = self.answer_dropout(hidden, site=self._dropout_site(), draw=draw, training=training)
        answer_logits = keras.ops.cast(keras.ops.squeeze(self.answer(hidden), -1), "float32")
        outputs = {"start_logits": start_logits, "answer_class_logits": answer_logits}
        if start_positions is not None:
            ends = self._end_logits(sequence_output, p_mask, keras.ops.reshape(start_positions, (-1, 1)))
            return {**outputs, "end_logits": ends[:, 0]}
        return {**outputs, **self._best(sequence_output, p_mask, start_logits)}

    def _best(self, sequence_output: tf.Tensor, p_mask: tf.Tensor, start_logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the best starts and, for each, the best ends, start-major."""
        num_starts, num_ends = self._arguments["num_starts"], self._arguments["num_ends"]
        start_scores, starts = _best_positions(tf.nn.log_softmax(start_logits), num_starts)
        end_log_probs = tf.nn.log_softmax(self._end_logits(sequence_output, p_mask, starts))
        end_scores, ends = _best_positions(end_log_probs, num_ends)
        return {
            "start_top_log_probs": start_scores,
            "start_top_index": starts,
            "end_top_log_probs": tf.reshape(end_scores, [-1, num_starts * num_ends]),
            "end_top_index": tf.reshape(ends, [-1, num_starts * num_ends]),
        }

    def _end_logits(self, sequence_output: tf.Tensor, p_mask: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Returns the logits of ends [batch, starts, seq] given `starts` int [batch, starts]."""
        at_start = tf.gather(sequence_output, starts, batch_dims=1)[:, :, None]
        everywhere = sequence_output[:, None] + tf.zeros_like(at_start)
        pairs = tf.concat([everywhere, at_start + tf.zeros_like(everywhere)], axis=-1)
        hidden = self.end_layer_norm(self.end_hidden(pairs))
        return _masked(keras.ops.squeeze(self.end(hidden), -1), p_mask[:, None])

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


def _masked(logits: tf.Tensor, p_mask: tf.Tensor) -> tf.Tensor:
    return keras.ops.cast(logits, "float32") * (1.0 - p_mask) + _IMPOSSIBLE * p_mask


def _best_positions(log_probs: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best `count` scores and their places on the last axis; impossible ones fill up a short sequence."""
    length = tf.shape(log_probs)[-1]
    missing = [[0, 0]] * (log_probs.shape.rank - 1) + [[0, tf.maximum(0, count - length)]]
    scores, places = tf.math.top_k(tf.pad(log_probs, missing, constant_values=_IMPOSSIBLE), count)
    return scores, tf.minimum(places, length - 1)


@_serializable
class AlbertWithHeads(keras.Model):
    """An encoder and the heads of a task, by the names of `weight_maps.HEADS`; `num_labels` is for the label heads.

    `pooler` may be False where no head reads the pooled output; `remat` is the encoder's.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        heads: tuple[str, ...] = (MASKED_LM, SENTENCE_ORDER),
        num_labels: int | None = None,
        pooler: bool = True,
        remat: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.head_names = tuple(heads)
        self.num_labels = num_labels
        self.has_pooler = pooler
        unknown = set(heads) - set(HEADS)
        if unknown:
            raise ValueError(f"heads must be among {', '.join(HEADS)}; received {', '.join(sorted(unknown))}")
        if not pooler and not _ON_POOLED_OUTPUT.isdisjoint(heads):
            raise ValueError(f"the heads {', '.join(heads)} need a pooler")
        self.encoder = AlbertEncoder(config, pooler=pooler, remat=remat, dtype=self.dtype_policy)
        for head in HEADS:
            setattr(self, head, self._make_head(head) if head in heads else None)
        self.built = True

    def _make_head(self, head: str) -> _Head:
        options = {"place": HEADS.index(head), "dtype": self.dtype_policy}
        if head == MASKED_LM:
            return MaskedLmHead(self.config, **options)
        if head == QUESTION_ANSWERING_V2:
            return QuestionAnsweringV2Head(self.config, **options)
        # The original has no dropout before its linear heads of pre-training and SQuAD v1.
        num_outputs: int | None = 2
        dropout = 0.0
        if head in LABEL_HEADS:
            num_outputs = 1 if head == MULTIPLE_CHOICE else self.num_labels
            dropout = self.config.classifier_dropout_prob
        if not num_outputs:
            raise ValueError(f"the head {head} needs num_labels")
        return LinearHead(self.config, num_outputs=num_outputs, dropout=dropout, **options)

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        *,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Returns the encoder's outputs and, for each head, `<head>_logits`; those of SQuAD `start_logits` and more.

        Beside the encoder's inputs the masked-token head needs `masked_lm_positions` int [batch, positions], and the
        head of SQuAD v2 `p_mask`. Multiple choice takes inputs [batch, choices, seq] and returns logits
        [batch, choices]; the encoder's outputs then have batch * choices rows. In training, where
        all heads are those of pre-training, the last block computes only what they read: `sequence_output` is that of
        [CLS] and of the masked tokens, [batch, 1 + positions, H].
        """
        choices = tf.shape(inputs["input_ids"])[1]
        if self.multiple_choice is not None:
            names = ("input_ids", "input_mask", "segment_ids")
            inputs = {name: tf.reshape(inputs[name], [-1, tf.shape(inputs[name])[2]]) for name in names}
            draw = draw and dataclasses.replace(draw, rows_per_example=choices)
        drop = {"draw": draw, "training": training}
        positions = inputs.get("masked_lm_positions")
        read = None
        if training and self.masked_lm is not None and set(self.head_names) <= {MASKED_LM, SENTENCE_ORDER}:
            read = tf.pad(positions, [[0, 0], [1, 0]])  # [CLS] is at 0
        outputs = self.encoder(inputs, positions=read, **drop)
        if self.masked_lm is not None:
            hidden = outputs["sequence_output"]
            masked = hidden[:, 1:] if read is not None else tf.gather(hidden, positions, axis=1, batch_dims=1)
            outputs["masked_lm_logits"] = self.masked_lm(masked, self.encoder.embeddings.word_embeddings)
        for head in (SENTENCE_ORDER, *LABEL_HEADS):
            if getattr(self, head) is not None:
                encoded = outputs["sequence_output" if head == TOKEN_CLASSIFICATION else "pooled_output"]
                outputs[f"{head}_logits"] = getattr(self, head)(encoded, **drop)
        if self.multiple_choice is not None:
            outputs["multiple_choice_logits"] = tf.reshape(outputs["multiple_choice_logits"], [-1, choices])
        if self.question_answering is not None:
            logits = self.question_answering(outputs["sequence_output"], **drop)
            outputs["start_logits"], outputs["end_logits"] = logits[:, :, 0], logits[:, :, 1]
        if self.question_answering_v2 is not None:
            outputs |= self.question_answering_v2(
                outputs["sequence_output"], inputs["p_mask"], inputs.get("start_positions"), **drop
            )
        return outputs

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "heads": list(self.head_names),
            "num_labels": self.num_labels,
            "pooler": self.has_pooler,
            "remat": self.encoder.remat,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "AlbertWithHeads":
        """Builds the model from `get_config`."""
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})
