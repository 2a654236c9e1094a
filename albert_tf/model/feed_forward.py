"""The feed-forward half of a transformer block (TF1 modeling.py attention_ffn_block)."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf.model import fused_ops
from albert_tf.model.dropout import Draw, SeededDropout, block_site
from albert_tf.model.primitives import LAYER_NORM_EPSILON, Affine, PartWeights, built_layer_norm

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


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

    def read_weights(self, uses: int, *, training: bool | None) -> list[PartWeights]:
        """Returns what `uses` calls need, read and cast once."""
        kernels = [
            fused_ops.fan_out(
                [tf.convert_to_tensor(part.kernel)], uses, dtype=tf.as_dtype(self.compute_dtype), training=training
            )
            for part in (self.intermediate_dense, self.output_dense)
        ]
        in_bias = tf.convert_to_tensor(self.intermediate_dense.bias)
        rest = [tf.convert_to_tensor(v) for v in (self.output_dense.bias, self.layer_norm.gamma, self.layer_norm.beta)]
        return [PartWeights(kernel, in_bias, output, *rest) for kernel, output in zip(*kernels, strict=True)]

    def call(
        self,
        hidden: tf.Tensor,
        *,
        weights: PartWeights | None = None,
        depth: int = 0,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `weights` is one entry of `read_weights`."""
        weights = weights or self.read_weights(1, training=training)[0]
        flat = tf.reshape(tf.cast(hidden, self.compute_dtype), [-1, self.hidden_size])
        inner = self.bias_activation(tf.matmul(flat, weights.in_kernel), weights.in_bias, training=training)
        kept = self.hidden_dropout.kept(tf.shape(hidden), site=block_site(depth, 2), draw=draw, training=training)
        kept = None if kept is None else tf.reshape(kept, [-1, self.hidden_size])
        output = fused_ops.residual_norm(
            tf.matmul(inner, weights.out_kernel),
            weights.out_bias,
            flat,
            weights.gamma,
            weights.beta,
            kept,
            epsilon=LAYER_NORM_EPSILON,
            keep_prob=self.hidden_dropout.keep_prob,
            training=training,
        )
        return tf.reshape(output, fused_ops.shape_of(hidden))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self._arguments}
