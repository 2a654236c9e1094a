"""The forward pass for inference: functions of plain TensorFlow ops over constants, made from weights.

They compute what `AlbertWithHeads` computes, and are faster than it on a CPU. Weights are constants of the graph, cast
once, so that oneDNN packs each of them once (the kernels of xxlarge are inputs of it); query, key and value are one
product; ops stand in the form that TensorFlow's remapper fuses (product, bias and GELU or residual; LayerNorm). Layers
that share weights are one loop. Where an answer needs only [CLS], the last layer computes only that.

TensorFlow's remapper gives every LayerNorm that it fuses the epsilon 0.001 (measured on 2.20), whatever the graph says,
and ALBERT's is 1e-12. Hidden states are therefore carried times 2^15, which is exact, and folded into the weights: at
that scale 0.001 is what 1e-12 is at the original one.
"""

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.sharing import LayerWeights
from albert_tf.architecture.weight_names import LABEL_HEADS, SENTENCE_ORDER, TOKEN_CLASSIFICATION
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.fused_ops import MASK_PENALTY
from albert_tf.model.primitives import LAYER_NORM_EPSILON

POOLED, MEAN, CLS = "pooled_embedding", "mean_embedding", "cls_embedding"
EMBEDDINGS = (POOLED, MEAN, CLS)

# TensorFlow copies the constants of a graph many times over (18 GB for xxlarge), so larger kernels are inputs of it.
_LARGEST_CONSTANT = 20_000_000

_SCALE = 2.0**15  # of hidden states and of the sum of embeddings

Weights = Mapping[str, np.ndarray]  # by TF1 name
Answers = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def answer_function(weights: Weights, config: AlbertConfig, *, output: str, dtype: tf.DType) -> Answers:
    """Returns a compiled function of `input_ids` and `segment_ids`, int32 [batch, seq], and `lengths`, int32 [batch].

    `output` is one of `EMBEDDINGS` (float32 [batch, H]) or a head, whose float32 logits are returned: [batch, labels],
    or [batch, seq, labels] of token_classification. Products and activations are computed in `dtype`.
    """
    embed = _embedding_function(weights, config, dtype)
    reads_all_tokens = output in (MEAN, TOKEN_CLASSIFICATION)
    whole, last = (
        (config.sharing_plan, None) if reads_all_tokens else (config.sharing_plan[:-1], config.sharing_plan[-1])
    )

    def answer(input_ids: tf.Tensor, segment_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(input_ids)
        mask = tf.sequence_mask(lengths, shape[1], dtype)
        penalty = (1.0 - mask)[:, None, None, :] * tf.constant(MASK_PENALTY, dtype)
        hidden = embed(input_ids, segment_ids)
        for pair, layers in itertools.groupby(whole):
            block = functools.partial(_Block(weights, config, pair, dtype=dtype), penalty=penalty, shape=shape)
            hidden = _repeat(block, hidden, times=len(list(layers)))
        if last is not None:
            first = _Block(weights, config, last, dtype=dtype).first_position(hidden, penalty, shape)
            return _answer_of_first(first, weights, output, dtype)
        sequence = tf.reshape(tf.cast(hidden, tf.float32), [shape[0], shape[1], config.hidden_size]) / _SCALE
        return _mean_of_text(sequence, segment_ids, lengths) if output == MEAN else _logits(sequence, weights, output)

    matrix = tf.TensorSpec([None, None], tf.int32)
    return tf.function(answer, input_signature=[matrix, matrix, tf.TensorSpec([None], tf.int32)], autograph=False)


def _repeat(block: Callable[[tf.Tensor], tf.Tensor], hidden: tf.Tensor, *, times: int) -> tf.Tensor:
    if times == 1:
        return block(hidden)
    return tf.while_loop(lambda i, _: i < times, lambda i, x: (i + 1, block(x)), [tf.constant(0), hidden])[1]


def _answer_of_first(first: tf.Tensor, weights: Weights, output: str, dtype: tf.DType) -> tf.Tensor:
    """Maps the last layer's [CLS] [batch, H] to an answer that needs nothing else."""
    if output == CLS:
        return tf.cast(first, tf.float32) / _SCALE
    kernel, bias = _kernel_and_bias(weights, "bert/pooler/dense", scale_in=_SCALE)
    pooled = tf.cast(tf.tanh(_dense(first, kernel, bias, dtype=dtype)), tf.float32)
    return pooled if output == POOLED else _logits(pooled, weights, output)


def _logits(encoded: tf.Tensor, weights: Weights, head: str) -> tf.Tensor:
    """Maps [..., H] to float32 [..., labels]; TF1 stores these kernels transposed."""
    scope = {**dict.fromkeys(LABEL_HEADS, ""), SENTENCE_ORDER: "cls/seq_relationship/"}[head]
    return tf.tensordot(encoded, weights[f"{scope}output_weights"].T, axes=1) + weights[f"{scope}output_bias"]


def _mean_of_text(sequence: tf.Tensor, segment_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the mean over the texts' tokens without [CLS] and [SEP] [batch, H]; zeros for an empty text."""
    positions = tf.range(tf.shape(segment_ids)[1])[None]
    last = lengths[:, None] - 1
    first_end = last - tf.reduce_sum(segment_ids, axis=1, keepdims=True)  # the first text's [SEP]
    is_text = (positions > 0) & (positions < last) & (positions != first_end)
    mask = tf.cast(is_text, tf.float32)[:, :, None]
    return tf.math.divide_no_nan(tf.reduce_sum(sequence * mask, axis=1), tf.reduce_sum(mask, axis=1))


def _embedding_function(
    weights: Weights, config: AlbertConfig, dtype: tf.DType
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a function of ids and segments that gives the first block's input [batch x seq, H]."""
    words, positions, segments = (
        tf.constant(weights[f"bert/embeddings/{name}_embeddings"] * np.float32(_SCALE))
        for name in ("word", "position", "token_type")
    )

    def embed(input_ids: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        total = tf.gather(words, input_ids) + tf.gather(segments, segment_ids)
        total = tf.reshape(total + positions[: tf.shape(input_ids)[1]], [-1, config.embedding_size])
        normal = tf.cast(_layer_norm(total, weights, "bert/embeddings/LayerNorm", dtype=tf.float32), dtype)
        if config.embedding_size == config.hidden_size:
            return normal
        scope = "bert/encoder/embedding_hidden_mapping_in"
        return _dense(normal, *_kernel_and_bias(weights, scope, scale_in=_SCALE, scale_out=_SCALE), dtype=dtype)

    return embed


class _Block:
    """One transformer block over hidden states [batch x seq, H]; called inside the graph that is to hold its weights.

    `penalty` [batch, 1, 1, seq] is added to the scores; `shape` is (batch, seq).
    """

    def __init__(self, weights: Weights, config: AlbertConfig, pair: LayerWeights, *, dtype: tf.DType) -> None:
        self._weights, self._config, self._dtype = weights, config, dtype
        self._head_size = config.hidden_size // config.num_attention_heads
        self._activation = ACTIVATIONS[config.hidden_act]
        self._attention, self._feed_forward = (
            f"bert/encoder/transformer/group_{index.group}/inner_group_{index.inner}" for index in pair
        )

    def __call__(self, hidden: tf.Tensor, penalty: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        """Maps all positions [batch x seq, H]."""
        projected = _dense(hidden, *self._projections("query", "key", "value"), dtype=self._dtype)
        query, key, value = self._split_heads(projected, shape, parts=3)
        return self._finish(self._attend(query, key, value, penalty), hidden)

    def first_position(self, hidden: tf.Tensor, penalty: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        """Maps the first position of each input: [batch x seq, H] to [batch, H]."""
        first = tf.reshape(hidden, [shape[0], shape[1], self._config.hidden_size])[:, 0]
        query = _dense(first, *self._projections("query"), dtype=self._dtype)
        query = self._split_heads(query, tf.stack([shape[0], 1]), parts=1)[0]
        projected = _dense(hidden, *self._projections("key", "value"), dtype=self._dtype)
        key, value = self._split_heads(projected, shape, parts=2)
        return self._finish(self._attend(query, key, value, penalty), first)

    def _projections(self, *parts: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the joined kernels and biases of `parts`; the query's are divided by the root of the head size."""
        kernels, biases = [], []
        for part in parts:
            scope = f"{self._attention}/attention_1/self/{part}"
            kernel, bias = _kernel_and_bias(self._weights, scope, scale_in=_SCALE)
            scale = np.float32(self._head_size**-0.5 if part == "query" else 1.0)
            kernels.append(kernel * scale)
            biases.append(bias * scale)
        return np.concatenate(kernels, axis=1), np.concatenate(biases)

    def _split_heads(self, projected: tf.Tensor, shape: tf.Tensor, *, parts: int) -> list[tf.Tensor]:
        """Maps [batch x seq, parts x H] to `parts` tensors [batch, heads, seq, head size]."""
        split = tf.reshape(projected, [shape[0], shape[1], parts, self._config.num_attention_heads, self._head_size])
        return tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))

    def _attend(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
        """Returns the context [batch x query positions, H]. Softmax adds up in float32 whatever its tensors are."""
        probabilities = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + penalty)
        context = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])
        return tf.reshape(context, [-1, self._config.hidden_size])

    def _finish(self, context: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        """Maps attention's context and the block's input to the block's output."""
        scope = f"{self._attention}/attention_1/output/dense"
        attended = self._dense(context, scope, scale_out=_SCALE) + residual
        attended = _layer_norm(attended, self._weights, f"{self._attention}/LayerNorm", dtype=self._dtype)
        scope = f"{self._feed_forward}/ffn_1/intermediate"
        inner = self._activation(self._dense(attended, f"{scope}/dense", scale_in=_SCALE))
        output = self._dense(inner, f"{scope}/output/dense", scale_out=_SCALE) + attended
        return _layer_norm(output, self._weights, f"{self._feed_forward}/LayerNorm_1", dtype=self._dtype)

    def _dense(self, inputs: tf.Tensor, scope: str, **scales: float) -> tf.Tensor:
        return _dense(inputs, *_kernel_and_bias(self._weights, scope, **scales), dtype=self._dtype)


def _kernel_and_bias(
    weights: Weights, scope: str, *, scale_in: float = 1.0, scale_out: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a layer for inputs that are `scale_in` times the original's, and outputs `scale_out` times."""
    return weights[f"{scope}/kernel"] * np.float32(scale_out / scale_in), weights[f"{scope}/bias"] * np.float32(
        scale_out
    )


def _dense(inputs: tf.Tensor, kernel: np.ndarray, bias: np.ndarray, *, dtype: tf.DType) -> tf.Tensor:
    bias = tf.constant(bias, dtype)
    if kernel.size <= _LARGEST_CONSTANT:
        return tf.nn.bias_add(tf.matmul(inputs, tf.constant(kernel, dtype)), bias)
    with tf.init_scope():
        kernel = tf.constant(kernel, dtype)
    product = tf.matmul(inputs, kernel)
    # A shape that keeps the bias out of the product: oneDNN's fused one is slower with a kernel that is not constant.
    return tf.nn.bias_add(product[None], bias)[0]


def _layer_norm(inputs: tf.Tensor, weights: Weights, scope: str, *, dtype: tf.DType) -> tf.Tensor:
    """LayerNorm over the last axis of [rows, width], to the scale of its input; in the form that the remapper knows."""
    gamma, beta = (tf.constant(weights[f"{scope}/{name}"] * np.float32(_SCALE), dtype) for name in ("gamma", "beta"))
    mean = tf.reduce_mean(inputs, axis=[1], keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(inputs, mean), axis=[1], keepdims=True)
    factor = tf.math.rsqrt(variance + tf.constant(LAYER_NORM_EPSILON * _SCALE**2, dtype)) * gamma
    return inputs * factor + (beta - mean * factor)
