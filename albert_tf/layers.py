"""The layers of ALBERT: factorised embeddings, attention, feed-forward network, and the shared block.

All follow TF1 modeling.py: post-layer-norm blocks, biases everywhere, LayerNorm epsilon 1e-12. They are ordinary Keras
layers. `dropout_seed` is explained in `albert_tf.dropout`.
"""

from typing import Any

import keras
import tensorflow as tf

from albert_tf import fused_ops
from albert_tf.dropout import SeededDropout

LAYER_NORM_EPSILON = 1e-12

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns ALBERT's initialiser: a normal distribution cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


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


Weights = tuple[tf.Tensor, ...]
BlockWeights = tuple[Weights, Weights]


@_serializable
class Affine(keras.layers.Layer):
    """A kernel [inputs, units] and a bias [units], float32 under any policy; the layers above do the arithmetic."""

    def __init__(self, inputs: int, units: int, initializer_range: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        options = {"dtype": "float32", "autocast": False}
        self.kernel = self.add_weight(
            shape=(inputs, units), initializer=truncated_normal(initializer_range), name="kernel", **options
        )
        self.bias = self.add_weight(shape=(units,), initializer="zeros", name="bias", **options)
        self.built = True


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
        super().__init__(autocast=False, **kwargs)
        self._arguments = {
            "hidden_size": hidden_size,
            "num_attention_heads": num_attention_heads,
            "attention_dropout": attention_dropout,
            "hidden_dropout": hidden_dropout,
            "initializer_range": initializer_range,
        }
        self.hidden_size = hidden_size
        self.num_heads = num_attention_heads
        self.query, self.key, self.value, self.output_dense = (
            Affine(hidden_size, hidden_size, initializer_range) for _ in range(4)
        )
        self.layer_norm = built_layer_norm(hidden_size, self.dtype_policy)
        self.attention_dropout = SeededDropout(attention_dropout, dtype=self.dtype_policy)
        self.hidden_dropout = SeededDropout(hidden_dropout, dtype=self.dtype_policy)
        self.built = True

    def read_weights(self, uses: int, *, training: bool | None) -> list[Weights]:
        """Returns what `uses` calls need, read, joined and cast once: the kernels of query, key and value are one."""
        parts = (self.query, self.key, self.value)
        options = {"dtype": tf.as_dtype(self.compute_dtype), "training": training}
        kernels = fused_ops.fan_out([tf.convert_to_tensor(part.kernel) for part in parts], uses, **options)
        outputs = fused_ops.fan_out([tf.convert_to_tensor(self.output_dense.kernel)], uses, **options)
        bias = tf.concat([part.bias for part in parts], axis=0)
        rest = [tf.convert_to_tensor(v) for v in (self.output_dense.bias, self.layer_norm.gamma, self.layer_norm.beta)]
        return [(kernel, bias, output, *rest) for kernel, output in zip(kernels, outputs, strict=True)]

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        *,
        weights: Weights | None = None,
        positions: tf.Tensor | None = None,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `input_mask` [batch, seq] is 1 for tokens and 0 for padding.

        `weights` is one entry of `read_weights`, for callers that call several times. With `positions` int [batch, n]
        only the outputs of these are computed, [batch, n, hidden].
        """
        weights = weights or self.read_weights(1, training=training)[0]
        in_kernel, in_bias, out_kernel, out_bias, gamma, beta = weights
        drop = {"dropout_seed": dropout_seed, "training": training}
        shape = fused_ops.shape_of(hidden)
        flat = tf.reshape(tf.cast(hidden, self.compute_dtype), [-1, self.hidden_size])
        heads = [*shape[:2], 3, self.num_heads, self.hidden_size // self.num_heads]
        product = tf.matmul(flat, in_kernel)
        if training:  # keeps the bias out of the product: oneDNN's fused one is slower where the kernel varies
            product = tf.reshape(product, [*shape[:2], 3 * self.hidden_size])
        split = tf.reshape(fused_ops.add_bias(product, in_bias), heads)
        query, key, value = tf.unstack(tf.transpose(split, (2, 0, 3, 1, 4)))
        residual = flat
        if positions is not None:
            query = tf.gather(query, positions, axis=2, batch_dims=1)
            hidden = tf.gather(tf.reshape(flat, shape), positions, axis=1, batch_dims=1)
            residual, shape = tf.reshape(hidden, [-1, self.hidden_size]), fused_ops.shape_of(hidden)
        scores = tf.matmul(query, key, transpose_b=True)
        probabilities = fused_ops.attention_probabilities(
            scores, input_mask, scale=(self.hidden_size // self.num_heads) ** -0.5, training=training
        )
        probabilities = self.attention_dropout(probabilities, site=_site(depth, 0), **drop)
        context = tf.reshape(tf.transpose(tf.matmul(probabilities, value), (0, 2, 1, 3)), [-1, self.hidden_size])
        output = fused_ops.residual_norm(
            tf.matmul(context, out_kernel),
            out_bias,
            residual,
            gamma,
            beta,
            *[
                tf.reshape(kept, [-1, self.hidden_size])
                for kept in self.hidden_dropout.kept(tf.shape(hidden), site=_site(depth, 1), **drop)
            ],
            epsilon=LAYER_NORM_EPSILON,
            keep_prob=self.hidden_dropout.keep_prob,
            training=training,
        )
        return tf.reshape(output, shape)

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
        super().__init__(autocast=False, **kwargs)
        self._arguments = {
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "hidden_act": hidden_act,
            "hidden_dropout": hidden_dropout,
            "initializer_range": initializer_range,
        }
        self.hidden_size = hidden_size
        self.intermediate_dense = Affine(hidden_size, intermediate_size, initializer_range)
        self.output_dense = Affine(intermediate_size, hidden_size, initializer_range)
        self.layer_norm = built_layer_norm(hidden_size, self.dtype_policy)
        self.hidden_dropout = SeededDropout(hidden_dropout, dtype=self.dtype_policy)
        self.bias_activation = fused_ops.bias_activation(hidden_act)
        self.built = True

    def read_weights(self, uses: int, *, training: bool | None) -> list[Weights]:
        """Returns what `uses` calls need, read and cast once."""
        kernels = [
            fused_ops.fan_out(
                [tf.convert_to_tensor(part.kernel)], uses, dtype=tf.as_dtype(self.compute_dtype), training=training
            )
            for part in (self.intermediate_dense, self.output_dense)
        ]
        in_bias = tf.convert_to_tensor(self.intermediate_dense.bias)
        rest = [tf.convert_to_tensor(v) for v in (self.output_dense.bias, self.layer_norm.gamma, self.layer_norm.beta)]
        return [(kernel, in_bias, output, *rest) for kernel, output in zip(*kernels, strict=True)]

    def call(
        self,
        hidden: tf.Tensor,
        *,
        weights: Weights | None = None,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `weights` is one entry of `read_weights`."""
        weights = weights or self.read_weights(1, training=training)[0]
        in_kernel, in_bias, out_kernel, out_bias, gamma, beta = weights
        flat = tf.reshape(tf.cast(hidden, self.compute_dtype), [-1, self.hidden_size])
        inner = self.bias_activation(tf.matmul(flat, in_kernel), in_bias, training=training)
        drop = {"dropout_seed": dropout_seed, "training": training}
        output = fused_ops.residual_norm(
            tf.matmul(inner, out_kernel),
            out_bias,
            flat,
            gamma,
            beta,
            *[
                tf.reshape(kept, [-1, self.hidden_size])
                for kept in self.hidden_dropout.kept(tf.shape(hidden), site=_site(depth, 2), **drop)
            ],
            epsilon=LAYER_NORM_EPSILON,
            keep_prob=self.hidden_dropout.keep_prob,
            training=training,
        )
        return tf.reshape(output, fused_ops.shape_of(hidden))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}


@_serializable
class TransformerBlock(keras.layers.Layer):
    """One post-layer-norm transformer block, made of an attention and a feed-forward layer that others may share.

    With cross-layer sharing `all` and one group, the encoder calls one object of this class at every depth.
    """

    def __init__(self, attention: SelfAttention, feed_forward: FeedForward, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.attention = attention
        self.feed_forward = feed_forward
        self.built = True

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        *,
        weights: BlockWeights | None = None,
        positions: tf.Tensor | None = None,
        depth: int = 0,
        dropout_seed: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `depth` numbers the calls of one forward pass.

        `weights` is what `read_weights` of the attention and of the feed-forward layer gave for this call;
        `positions` as in `SelfAttention`.
        """
        options = {"depth": depth, "dropout_seed": dropout_seed, "training": training}
        attention, feed_forward = weights or (None, None)
        hidden = self.attention(hidden, input_mask, weights=attention, positions=positions, **options)
        return self.feed_forward(hidden, weights=feed_forward, **options)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        parts = {"attention": self.attention, "feed_forward": self.feed_forward}
        serialized = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **serialized}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerBlock":
        """Builds the block from `get_config`."""
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("attention", "feed_forward")}
        return cls(**{**config, **parts})


def _site(depth: int, place: int) -> int:
    """Numbers the dropout calls of a forward pass; 0 is the embeddings'."""
    return 1 + 3 * depth + place


def site_after(depth: int) -> int:
    """Returns the first number for dropout calls that follow those of `depth` blocks."""
    return _site(depth, 0)


def built_dense(inputs: int, units: int, *, initializer_range: float, dtype: Any, **kwargs: Any) -> keras.layers.Dense:
    """Returns a dense layer on [..., inputs] whose weights exist; `kwargs` are the layer's."""
    dense = keras.layers.Dense(units, kernel_initializer=truncated_normal(initializer_range), dtype=dtype, **kwargs)
    dense.build((None, None, inputs))
    return dense


def built_layer_norm(size: int, dtype: Any) -> keras.layers.LayerNormalization:
    """Returns a LayerNorm on [..., size] whose weights exist."""
    layer_norm = keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype)
    layer_norm.build((None, None, size))
    return layer_norm
