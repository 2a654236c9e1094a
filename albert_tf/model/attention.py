"""The self-attention half of a transformer block (TF1 modeling.py attention_layer)."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf.model import fused_ops
from albert_tf.model.dropout import Draw, SeededDropout, block_site
from albert_tf.model.primitives import LAYER_NORM_EPSILON, Affine, PartWeights, built_layer_norm

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


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

    def read_weights(self, uses: int, *, training: bool | None) -> list[PartWeights]:
        """Returns what `uses` calls need, read, joined and cast once: the kernels of query, key and value are one."""
        parts = (self.query, self.key, self.value)
        options = {"dtype": tf.as_dtype(self.compute_dtype), "training": training}
        kernels = fused_ops.fan_out([tf.convert_to_tensor(part.kernel) for part in parts], uses, **options)
        outputs = fused_ops.fan_out([tf.convert_to_tensor(self.output_dense.kernel)], uses, **options)
        bias = tf.concat([part.bias for part in parts], axis=0)
        rest = [tf.convert_to_tensor(v) for v in (self.output_dense.bias, self.layer_norm.gamma, self.layer_norm.beta)]
        return [PartWeights(kernel, bias, output, *rest) for kernel, output in zip(kernels, outputs, strict=True)]

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        *,
        weights: PartWeights | None = None,
        positions: tf.Tensor | None = None,
        depth: int = 0,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `input_mask` [batch, seq] is 1 for tokens and 0 for padding.

        `weights` is one entry of `read_weights`, for callers that call several times. With `positions` int [batch, n]
        only the outputs of these are computed, [batch, n, hidden].
        """
        weights = weights or self.read_weights(1, training=training)[0]
        shape = fused_ops.shape_of(hidden)
        flat = tf.reshape(tf.cast(hidden, self.compute_dtype), [-1, self.hidden_size])
        heads = [*shape[:2], 3, self.num_heads, self.hidden_size // self.num_heads]
        product = tf.matmul(flat, weights.in_kernel)
        if training:  # keeps the bias out of the product: oneDNN's fused one is slower where the kernel varies
            product = tf.reshape(product, [*shape[:2], 3 * self.hidden_size])
        split = tf.reshape(fused_ops.add_bias(product, weights.in_bias), heads)
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
        probabilities = self.attention_dropout(probabilities, site=block_site(depth, 0), draw=draw, training=training)
        context = tf.reshape(tf.transpose(tf.matmul(probabilities, value), (0, 2, 1, 3)), [-1, self.hidden_size])
        kept = self.hidden_dropout.kept(tf.shape(hidden), site=block_site(depth, 1), draw=draw, training=training)
        kept = None if kept is None else tf.reshape(kept, [-1, self.hidden_size])
        output = fused_ops.residual_norm(
            tf.matmul(context, weights.out_kernel),
            weights.out_bias,
            residual,
            weights.gamma,
            weights.beta,
            kept,
            epsilon=LAYER_NORM_EPSILON,
            keep_prob=self.hidden_dropout.keep_prob,
            training=training,
        )
        return tf.reshape(output, shape)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}
