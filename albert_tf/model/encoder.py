"""The ALBERT encoder: embeddings, calls of (shared) transformer blocks under the sharing plan, and the pooler."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.architecture import sharing
from albert_tf.architecture.config import AlbertConfig
from albert_tf.model.attention import SelfAttention
from albert_tf.model.block import BlockWeights, TransformerBlock
from albert_tf.model.dropout import Draw
from albert_tf.model.embeddings import FactorizedEmbedding
from albert_tf.model.feed_forward import FeedForward
from albert_tf.model.primitives import PartWeights, built_dense


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(keras.layers.Layer):
    """ALBERT without a head. Its weights exist as soon as it is constructed.

    `attentions` and `feed_forwards` map a `sharing.BlockIndex` to its one layer; `blocks` maps the pairs that the plan
    combines to their one `TransformerBlock`. With `remat` training keeps only the inputs of each block for the backward
    pass and computes the rest again: less memory, a third more work, the same gradients.
    """

    def __init__(self, config: AlbertConfig, *, pooler: bool = True, remat: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.remat = remat
        self.embeddings = FactorizedEmbedding(
            config.vocab_size,
            embedding_size=config.embedding_size,
            hidden_size=config.hidden_size,
            max_position_embeddings=config.max_position_embeddings,
            type_vocab_size=config.type_vocab_size,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
            dtype=self.dtype_policy,
        )
        self.plan = config.sharing_plan
        self._attentions = [self._make_attention() for _ in self.attention_indices]
        self._feed_forwards = [self._make_feed_forward() for _ in self.feed_forward_indices]
        self._pairs = list(dict.fromkeys(self.plan))
        self.blocks = [
            TransformerBlock(
                self.attention(pair.attention), self.feed_forward(pair.feed_forward), dtype=self.dtype_policy
            )
            for pair in self._pairs
        ]
        self.pooler = self._make_pooler() if pooler else None
        self.built = True

    @property
    def attention_indices(self) -> list[sharing.BlockIndex]:
        """The attention weights that exist, in order."""
        return sorted({weights.attention for weights in self.plan})

    @property
    def feed_forward_indices(self) -> list[sharing.BlockIndex]:
        """The feed-forward weights that exist, in order."""
        return sorted({weights.feed_forward for weights in self.plan})

    def attention(self, index: sharing.BlockIndex) -> SelfAttention:
        """Returns the one attention layer of these weights."""
        return self._attentions[self.attention_indices.index(index)]

    def feed_forward(self, index: sharing.BlockIndex) -> FeedForward:
        """Returns the one feed-forward layer of these weights."""
        return self._feed_forwards[self.feed_forward_indices.index(index)]

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        *,
        positions: tf.Tensor | None = None,
        draw: Draw | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes `input_ids`, `input_mask` (1 for tokens, 0 for padding) and `segment_ids`, each int [batch, seq].

        Returns `embedding_output` [batch, seq, E], `encoder_layers` (one [batch, seq, H] for each executed block),
        `sequence_output` (the last of them) and, where there is a pooler, `pooled_output` [batch, H]. With `positions`
        int [batch, n] the last block computes these alone, [batch, n, H]; for a pooler the first is that of [CLS].
        """
        options = {"draw": draw, "training": training}
        embedding_output, hidden = self.embeddings(inputs["input_ids"], inputs["segment_ids"], **options)
        encoder_layers = []
        block_weights = self._read_weights(training)
        for depth, pair in enumerate(self.plan):
            block: Any = self.blocks[self._pairs.index(pair)]
            read = positions if depth == len(self.plan) - 1 else None
            call: Callable[..., tf.Tensor] = functools.partial(block, positions=read, depth=depth, **options)
            call = _recomputed(call) if self.remat and training else call
            hidden = call(hidden, inputs["input_mask"], weights=block_weights[depth])
            encoder_layers.append(hidden)
        outputs = {
            "embedding_output": embedding_output,
            "encoder_layers": encoder_layers,
            "sequence_output": hidden,
        }
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(hidden[:, 0])
        return outputs

    def _read_weights(self, training: bool | None) -> list[BlockWeights]:
        """Returns the weights of each block call; weights that several calls share are read and cast once."""
        attentions: dict[sharing.BlockIndex, list[PartWeights]] = {}
        for index, uses in Counter(pair.attention for pair in self.plan).items():
            attentions[index] = self.attention(index).read_weights(uses, training=training)
        feed_forwards: dict[sharing.BlockIndex, list[PartWeights]] = {}
        for index, uses in Counter(pair.feed_forward for pair in self.plan).items():
            feed_forwards[index] = self.feed_forward(index).read_weights(uses, training=training)
        # In the order of the plan, each call takes the next of what was read of its weights.
        return [
            BlockWeights(attentions[pair.attention].pop(0), feed_forwards[pair.feed_forward].pop(0))
            for pair in self.plan
        ]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AlbertEncoder":
        """Builds the encoder from `get_config`."""
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})

    def _make_attention(self) -> SelfAttention:
        return SelfAttention(
            self.config.hidden_size,
            num_attention_heads=self.config.num_attention_heads,
            attention_dropout=self.config.attention_probs_dropout_prob,
            hidden_dropout=self.config.hidden_dropout_prob,
            initializer_range=self.config.initializer_range,
            dtype=self.dtype_policy,
        )

    def _make_feed_forward(self) -> FeedForward:
        return FeedForward(
            self.config.hidden_size,
            intermediate_size=self.config.intermediate_size,
            hidden_act=self.config.hidden_act,
            hidden_dropout=self.config.hidden_dropout_prob,
            initializer_range=self.config.initializer_range,
            dtype=self.dtype_policy,
        )

    def _make_pooler(self) -> keras.layers.Dense:
        return built_dense(
            self.config.hidden_size,
            self.config.hidden_size,
            initializer_range=self.config.initializer_range,
            dtype=self.dtype_policy,
            activation="tanh",
        )


def _recomputed(block: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns `block` keeping only its inputs for the backward pass, which computes everything else again."""

    def call(hidden: tf.Tensor, input_mask: tf.Tensor, weights: BlockWeights) -> tf.Tensor:
        @tf.custom_gradient
        def run(hidden: tf.Tensor, *flat: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
                with tf.GradientTape() as tape:
                    again = _after(hidden, upstream)
                    tape.watch([again, *flat])
                    output = block(again, input_mask, weights=tf.nest.pack_sequence_as(weights, flat))
                return tape.gradient(output, [again, *flat], output_gradients=upstream)

            return block(hidden, input_mask, weights=tf.nest.pack_sequence_as(weights, flat)), gradient

        return run(hidden, *tf.nest.flatten(weights))

    return call


def _after(x: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns `x` so that it cannot be had before `other`: else a compiler would merge both computations of a block."""
    value = tf.reshape(other, [-1])[0]
    return x + tf.where(tf.math.is_nan(value), value, tf.zeros_like(value))
