"""The layers of ALBERT: factorised embeddings, attention, feed-forward network, and the shared block.

All follow TF1 modeling.py: post-layer-norm blocks, biases everywhere, LayerNorm epsilon 1e-12. They are ordinary Keras
layers. `dropout_seed` makes dropout a function of the training step and of each example's place in the global batch,
so that a run on N replicas, or a resumed one, draws the masks of an uninterrupted run on one device.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

LAYER_NORM_EPSILON = 1e-12
_MASK_PENALTY = -10000.0  # added to the scores of padding

_PHILOX = 1  # tf.random.Algorithm.PHILOX; it makes 4 words of 32 bits for each value of its counter

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


def activation_function(name: str) -> Any:
    """Returns the function of an activation name of `AlbertConfig.hidden_act`."""
    return {
        "gelu_tanh": gelu_tanh,
        "gelu_erf": lambda x: keras.ops.gelu(x, approximate=False),
        "relu": keras.ops.relu,
        "tanh": keras.ops.tanh,
        "linear": lambda x: x,
    }[name]


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """The tanh approximation of GELU (Hendrycks and Gimpel, 2016), as TF1 modeling.gelu."""
    return tf.nn.gelu(x, approximate=True)


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns ALBERT's initialiser: a normal distribution cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


@_serializable
class SeededDropout(keras.layers.Layer):
    """Dropout whose mask is a function of (run seed, step, call site, index of the example in the global batch).

    Without a `dropout_seed` it is the Keras one (`model.fit` on one device).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(
        self, inputs: tf.Tensor, *, site: int = 0, dropout_seed: tf.Tensor | None = None, training: bool | None = None
    ) -> tf.Tensor:
        """Drops entries of `inputs` [batch, ...].

        `dropout_seed` is int64 [3]: run seed, step, and global index of the first example. `site` numbers the calls of
        one forward pass, since a shared layer is called at every depth.
        """
        if not training or not self.rate:
            return inputs
        if dropout_seed is None:
            return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)
        kept = _keep_mask(tf.shape(inputs), keep_prob=1.0 - self.rate, site=site, dropout_seed=dropout_seed)
        return tf.where(tf.reshape(kept, tf.shape(inputs)), inputs / (1.0 - self.rate), tf.zeros_like(inputs))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}


def _keep_mask(shape: tf.Tensor, *, keep_prob: float, site: int, dropout_seed: tf.Tensor) -> tf.Tensor:
    """Returns bool [batch, entries of an example]: a slice of the mask that the whole global batch would have."""
    seed, step, first_example = tf.unstack(tf.cast(dropout_seed, tf.uint64))
    entries = tf.reduce_prod(shape[1:])
    counters_per_example = (entries + 3) // 4
    low = first_example * tf.cast(counters_per_example, tf.uint64)
    high = step * tf.constant(2**16, tf.uint64) + tf.constant(site, tf.uint64)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([shape[0], 4 * counters_per_example]),
        key=seed[None],
        counter=tf.stack([low, high]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    threshold = np.uint32(min(round(keep_prob * 2**32), 2**32 - 1))
    return bits[:, :entries] < threshold


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
        self.layer_norm = _built_layer_norm(embedding_size, self.dtype_policy)
        self.dropout = SeededDropout(dropout, dtype=self.dtype_policy)
        self.projection = None
        if embedding_size != hidden_size:
            self.projection = _built_dense(embedding_size, hidden_size, initializer_range, self.dtype_policy)
        self.built = True

    def call(
        self,
        input_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        *,
        dropout_seed: tf.Tensor | None = None,
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
        embeddings = self.dropout(embeddings, site=0, dropout_seed=dropout_seed, training=training)
        return embeddings, embeddings if self.projection is None else self.projection(embeddings)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


@_serializable
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention with its output projection, residual and LayerNorm (TF1 modeling.attention_layer)."""

    def __init__(
        self,
        hidden_size: int,
        *,
        num_attention_heads: int,
        attention_dropout: float,
        hidden_dropout: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._arguments = {
            "hidden_size": hidden_size,
            "num_attention_heads": num_attention_heads,
            "attention_dropout": attention_dropout,
            "hidden_dropout": hidden_dropout,
            "initializer_range": initializer_range,
        }
        self.num_heads = num_attention_heads
        self.head_size = hidden_size // num_attention_heads
        self.query, self.key, self.value, self.output_dense = (
            _built_dense(hidden_size, hidden_size, initializer_range, self.dtype_policy) for _ in range(4)
        )
        self.layer_norm = _built_layer_norm(hidden_size, self.dtype_policy)
        self.attention_dropout = SeededDropout(attention_dropout, dtype=self.dtype_policy)
        self.hidden_dropout = SeededDropout(hidden_dropout, dtype=self.dtype_policy)
        self.built = True

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        *,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `input_mask` [batch, seq] is 1 for tokens and 0 for padding."""
        query, key, value = (self._split_heads(dense(hidden)) for dense in (self.query, self.key, self.value))
        scores = keras.ops.matmul(query, keras.ops.transpose(key, (0, 1, 3, 2)))
        scores = keras.ops.cast(scores, "float32") / np.sqrt(self.head_size).astype(np.float32)
        padding = 1.0 - keras.ops.cast(input_mask, "float32")[:, None, None, :]
        probabilities = keras.ops.cast(keras.ops.softmax(scores + padding * _MASK_PENALTY), value.dtype)
        drop = {"dropout_seed": dropout_seed, "training": training}
        probabilities = self.attention_dropout(probabilities, site=_site(depth, 0), **drop)
        context = keras.ops.transpose(keras.ops.matmul(probabilities, value), (0, 2, 1, 3))
        context = keras.ops.reshape(context, keras.ops.shape(hidden))
        output = self.hidden_dropout(self.output_dense(context), site=_site(depth, 1), **drop)
        return self.layer_norm(hidden + output)

    def _split_heads(self, projected: tf.Tensor) -> tf.Tensor:
        """Maps [batch, seq, hidden] to [batch, heads, seq, head size]."""
        batch, length = keras.ops.shape(projected)[:2]
        heads = keras.ops.reshape(projected, (batch, length, self.num_heads, self.head_size))
        return keras.ops.transpose(heads, (0, 2, 1, 3))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


@_serializable
class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network with residual and LayerNorm."""

    def __init__(
        self,
        hidden_size: int,
        *,
        intermediate_size: int,
        hidden_act: str,
        hidden_dropout: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._arguments = {
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "hidden_act": hidden_act,
            "hidden_dropout": hidden_dropout,
            "initializer_range": initializer_range,
        }
        self.intermediate_dense = _built_dense(hidden_size, intermediate_size, initializer_range, self.dtype_policy)
        self.output_dense = _built_dense(intermediate_size, hidden_size, initializer_range, self.dtype_policy)
        self.layer_norm = _built_layer_norm(hidden_size, self.dtype_policy)
        self.hidden_dropout = SeededDropout(hidden_dropout, dtype=self.dtype_policy)
        self.activation = activation_function(hidden_act)
        self.built = True

    def call(
        self,
        hidden: tf.Tensor,
        *,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape."""
        output = self.output_dense(self.activation(self.intermediate_dense(hidden)))
        output = self.hidden_dropout(output, site=_site(depth, 2), dropout_seed=dropout_seed, training=training)
        return self.layer_norm(hidden + output)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


@_serializable
class TransformerBlock(keras.layers.Layer):
    """One post-layer-norm transformer block, made of an attention and a feed-forward layer that others may share.

    With cross-layer sharing `all` and one group, the encoder calls one object of this class at every depth.
    """

    def __init__(self, attention: SelfAttention, feed_forward: FeedForward, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.feed_forward = feed_forward
        self.built = True

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        *,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `depth` numbers the calls of one forward pass."""
        options = {"depth": depth, "dropout_seed": dropout_seed, "training": training}
        return self.feed_forward(self.attention(hidden, input_mask, **options), **options)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        parts = {"attention": self.attention, "feed_forward": self.feed_forward}
        serialized = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **serialized}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerBlock":
        """Builds the block from `get_config`."""
        for name in ("attention", "feed_forward"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def _site(depth: int, place: int) -> int:
    """Numbers the dropout calls of a forward pass; 0 is the embeddings'."""
    return 1 + 3 * depth + place


def _built_dense(inputs: int, units: int, initializer_range: float, dtype: Any) -> keras.layers.Dense:
    dense = keras.layers.Dense(units, kernel_initializer=truncated_normal(initializer_range), dtype=dtype)
    dense.build((None, None, inputs))
    return dense


def _built_layer_norm(size: int, dtype: Any) -> keras.layers.LayerNormalization:
    layer_norm = keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype)
    layer_norm.build((None, None, size))
    return layer_norm
