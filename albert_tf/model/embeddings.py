"""The factorised embeddings (paper section 3.1; TF1 modeling.py embedding_lookup and embedding_postprocessor)."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf.model.dropout import Draw, SeededDropout
from albert_tf.model.primitives import built_dense, built_layer_norm, truncated_normal

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


@_serializable
class FactorizedEmbedding(keras.layers.Layer):
    """Word, segment and position embeddings of width E, LayerNorm over E, dropout, and the projection to H.

    The projection has a bias and no activation, and does not exist where E equals H (paper section 3.1).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embedding_size: int,
        hidden_size: int,
        max_position_embeddings: int,
        type_vocab_size: int,
        dropout: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._arguments = {
            "vocab_size": vocab_size,
            "embedding_size": embedding_size,
            "hidden_size": hidden_size,
            "max_position_embeddings": max_position_embeddings,
            "type_vocab_size": type_vocab_size,
            "dropout": dropout,
            "initializer_range": initializer_range,
        }
        self.max_position_embeddings = max_position_embeddings
        # Tables stay float32: the gradient of a lookup adds up many rows, which bfloat16 cannot.
        table = {"initializer": truncated_normal(initializer_range), "dtype": "float32", "autocast": False}
        self.word_embeddings = self.add_weight(shape=(vocab_size, embedding_size), name="word_embeddings", **table)
        self.token_type_embeddings = self.add_weight(
            shape=(type_vocab_size, embedding_size), name="token_type_embeddings", **table
        )
        self.position_embeddings = self.add_weight(
            shape=(max_position_embeddings, embedding_size), name="position_embeddings", **table
        )
        self.layer_norm = built_layer_norm(embedding_size, self.dtype_policy)
        self.dropout = SeededDropout(dropout, dtype=self.dtype_policy)
        self.projection = None
        if embedding_size != hidden_size:
            self.projection = built_dense(
                embedding_size, hidden_size, initializer_range=initializer_range, dtype=self.dtype_policy
            )
        self.built = True

    def call(
        self,
        input_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        *,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the embeddings [batch, seq, E] after LayerNorm and dropout, and their projection [batch, seq, H]."""
        length = input_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"the sequence length may not exceed max_position_embeddings; received {length} "
                f"and {self.max_position_embeddings}"
            )
        positions = self.position_embeddings[: keras.ops.shape(input_ids)[1]]
        embeddings = keras.ops.take(self.word_embeddings, input_ids, axis=0)
        embeddings += keras.ops.take(self.token_type_embeddings, segment_ids, axis=0)
        embeddings = self.layer_norm(embeddings + positions[None])
        embeddings = self.dropout(embeddings, site=0, draw=draw, training=training)
        return embeddings, embeddings if self.projection is None else self.projection(embeddings)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}
