"""The transformer block that the encoder calls at every depth.

As TF1 modeling.py: LayerNorm after each half, biases everywhere, epsilon 1e-12. `draw` is explained in `model.dropout`.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.model.attention import SelfAttention
from albert_tf.model.dropout import Draw
from albert_tf.model.feed_forward import FeedForward
from albert_tf.model.primitives import PartWeights

_serializable = keras.saving.register_keras_serializable(package="albert_tf")


class BlockWeights(NamedTuple):
    """What one call of a block reads: an entry of `read_weights` of its attention and of its feed-forward layer."""

    attention: PartWeights
    feed_forward: PartWeights


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
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Maps [batch, seq, hidden] to the same shape; `depth` numbers the calls of one forward pass.

        `weights` is what `read_weights` of the attention and of the feed-forward layer gave for this call;
        `positions` as in `SelfAttention`.
        """
        options = {"depth": depth, "draw": draw, "training": training}
        attention = weights.attention if weights else None
        feed_forward = weights.feed_forward if weights else None
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
