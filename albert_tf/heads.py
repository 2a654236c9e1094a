"""Heads on the encoder, and AlbertWithHeads, the only composition of the two (TF1 run_pretraining.py:294-361)."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf import layers
from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder
from albert_tf.weight_maps import MASKED_LM, SENTENCE_ORDER

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


@_serializable
class MaskedLmHead(keras.layers.Layer):
    """Logits of the masked tokens: dense H to E with the hidden activation, LayerNorm, and the word table transposed.

    The word table is the encoder's (tied at width E); the head owns a bias over the vocabulary.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.transform = keras.layers.Dense(
            config.embedding_size,
            kernel_initializer=layers.truncated_normal(config.initializer_range),
            dtype=self.dtype_policy,
        )
        self.transform.build((None, None, config.hidden_size))
        self.activation = layers.activation_function(config.hidden_act)
        self.layer_norm = keras.layers.LayerNormalization(epsilon=layers.LAYER_NORM_EPSILON, dtype=self.dtype_policy)
        self.layer_norm.build((None, None, config.embedding_size))
        self.output_bias = self.add_weight(
            shape=(config.vocab_size,), initializer="zeros", name="output_bias", dtype="float32", autocast=False
        )
        self.built = True

    def call(self, sequence_output: tf.Tensor, positions: tf.Tensor, word_embeddings: Any) -> tf.Tensor:
        """Returns float32 logits [batch, positions, vocabulary] at `positions` int [batch, positions]."""
        gathered = keras.ops.take_along_axis(sequence_output, positions[:, :, None], axis=1)
        transformed = self.layer_norm(self.activation(self.transform(gathered)))
        table = keras.ops.cast(word_embeddings, transformed.dtype)
        logits = keras.ops.matmul(transformed, keras.ops.transpose(table))
        return keras.ops.cast(logits, "float32") + self.output_bias

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MaskedLmHead":
        """Builds the head from `get_config`."""
        return cls(AlbertConfig.from_dict(config.pop("config")), **config)


@_serializable
class SentenceOrderHead(keras.layers.Layer):
    """Two logits of the pooled output: segments in order, or swapped. The kernel is stored [2, H] as in TF1."""

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.output_weights = self.add_weight(
            shape=(2, config.hidden_size),
            initializer=layers.truncated_normal(config.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(shape=(2,), initializer="zeros", name="output_bias")
        self.built = True

    def call(self, pooled_output: tf.Tensor) -> tf.Tensor:
        """Returns float32 logits [batch, 2] of `pooled_output` [batch, H]."""
        logits = keras.ops.matmul(pooled_output, keras.ops.transpose(self.output_weights)) + self.output_bias
        return keras.ops.cast(logits, "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SentenceOrderHead":
        """Builds the head from `get_config`."""
        return cls(AlbertConfig.from_dict(config.pop("config")), **config)


@_serializable
class AlbertWithHeads(keras.Model):
    """An encoder and the heads of a task; `heads` names them (`masked_lm`, `sentence_order`)."""

    def __init__(
        self, config: AlbertConfig, *, heads: tuple[str, ...] = (MASKED_LM, SENTENCE_ORDER), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.head_names = tuple(heads)
        unknown = set(heads) - {MASKED_LM, SENTENCE_ORDER}
        if unknown:
            raise ValueError(
                f"heads must be among {MASKED_LM}, {SENTENCE_ORDER}; received {', '.join(sorted(unknown))}"
            )
        self.encoder = AlbertEncoder(config, dtype=self.dtype_policy)
        self.masked_lm = MaskedLmHead(config, dtype=self.dtype_policy) if MASKED_LM in heads else None
        self.sentence_order = SentenceOrderHead(config, dtype=self.dtype_policy) if SENTENCE_ORDER in heads else None
        self.built = True

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        *,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Returns the encoder's outputs and, for each head, `<head>_logits`.

        Beside the encoder's inputs the masked-token head needs `masked_lm_positions` int [batch, positions].
        """
        outputs = self.encoder(inputs, dropout_seed=dropout_seed, training=training)
        if self.masked_lm is not None:
            outputs["masked_lm_logits"] = self.masked_lm(
                outputs["sequence_output"], inputs["masked_lm_positions"], self.encoder.embeddings.word_embeddings
            )
        if self.sentence_order is not None:
            outputs["sentence_order_logits"] = self.sentence_order(outputs["pooled_output"])
        return outputs

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict(), "heads": list(self.head_names)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "AlbertWithHeads":
        """Builds the model from `get_config`."""
        return cls(AlbertConfig.from_dict(config.pop("config")), heads=tuple(config.pop("heads")), **config)
