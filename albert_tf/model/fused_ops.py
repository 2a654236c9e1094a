"""The element-wise work between a block's matrix products, written once and run in two ways.

In training each function, and its gradient, is one pass over memory that XLA compiles: TensorFlow's own kernels would
make a dozen, each rounding to bfloat16. A gradient recomputes from the function's inputs, so nothing else is kept for
it. Outside training the plain operations run: the exported graph may hold nothing of XLA, and TensorFlow's graph
optimiser fuses them into oneDNN's matrix products.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.model.activations import ACTIVATIONS

MASK_PENALTY = -10000.0  # added to the scores of padding

_compiled = functools.partial(tf.function, jit_compile=True, autograph=False)


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` computing in float32, with its outputs in the type of its first input."""

    def run(inputs: Sequence[tf.Tensor], **static: float) -> Any:
        wide = [tf.cast(x, tf.float32) if x.dtype.is_floating else x for x in inputs]
        return tf.nest.map_structure(lambda y: tf.cast(y, inputs[0].dtype), function(*wide, **static))

    return run


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an argument `training` to an element-wise function of tensors, which compiles it and its gradient.

    Keyword arguments are Python numbers. Inputs that are not floating point have no gradient; a last one that is None
    is left out.
    """
    run = _in_float32(function)

    def differentiate(inputs: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor], **static: float) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch([x for x in inputs if x.dtype.is_floating])
            outputs = tf.nest.flatten(run(inputs, **static))
        return tape.gradient(outputs, list(inputs), output_gradients=list(upstream))

    forward = _compiled(run)
    backward = _compiled(differentiate)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*given: tf.Tensor | None, training: bool | None, **static: float) -> Any:
        inputs = [x for x in given if x is not None]
        if not training:
            return function(*inputs, **static)

        @tf.custom_gradient
        def differentiable(*inputs: tf.Tensor) -> Any:
            return forward(inputs, **static), lambda *upstream: backward(inputs, upstream, **static)

        return differentiable(*inputs)

    return call


@functools.cache
def bias_activation(name: str) -> Callable[..., tf.Tensor]:
    """Returns the fused function (x [tokens, width], bias [width]) -> activation(x + bias)."""
    activation = ACTIVATIONS[name]
    return fused(lambda x, bias: activation(add_bias(x, bias)))


def attention_probabilities(
    scores: tf.Tensor, input_mask: tf.Tensor, *, scale: float, training: bool | None
) -> tf.Tensor:
    """Softmax of scaled `scores` [batch, heads, seq, seq] over the tokens; padding has `input_mask` [batch, seq] 0."""
    if not training:
        return _softmax(scores, input_mask, scale=scale)

    @tf.custom_gradient
    def differentiable(scores: tf.Tensor) -> Any:
        probabilities = _compiled_softmax(scores, input_mask, scale=scale)
        return probabilities, lambda upstream: _softmax_gradient(probabilities, upstream, scale=scale)

    return differentiable(scores)


def _softmax(scores: tf.Tensor, input_mask: tf.Tensor, *, scale: float) -> tf.Tensor:
    padding = 1.0 - tf.cast(input_mask, tf.float32)[:, None, None, :]
    return tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32) * scale + padding * MASK_PENALTY), scores.dtype)


_compiled_softmax = _compiled(_softmax)


@_compiled
def _softmax_gradient(probabilities: tf.Tensor, upstream: tf.Tensor, *, scale: float) -> tf.Tensor:
    """From the probabilities, which the product after them keeps anyway, rather than from the scores."""
    wide = tf.cast(probabilities, tf.float32)
    products = wide * tf.cast(upstream, tf.float32)
    return tf.cast((products - wide * tf.reduce_sum(products, axis=-1, keepdims=True)) * scale, probabilities.dtype)


def token_losses(logits: tf.Tensor, labels: tf.Tensor, *, training: bool | None) -> tf.Tensor:
    """Returns -log softmax(logits)[labels]; `logits` float32 [rows, classes], `labels` int [rows]."""
    if not training:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    @tf.custom_gradient
    def differentiable(logits: tf.Tensor) -> Any:
        losses, gradient = _compiled_losses(logits, labels)
        return losses, lambda upstream: gradient * upstream[:, None]

    return differentiable(logits)


@_compiled
def _compiled_losses(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the losses and their gradient, which TensorFlow's own kernel computes in twice the time."""
    return tuple(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels))


@fused
def drop(x: tf.Tensor, kept: tf.Tensor, *, keep_prob: float) -> tf.Tensor:
    """Scales the entries of x that are `kept`, and drops the others."""
    return tf.where(kept, x / keep_prob, tf.zeros_like(x))


@fused
def residual_norm(
    x: tf.Tensor,
    bias: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    kept: tf.Tensor | None = None,
    *,
    epsilon: float,
    keep_prob: float,
) -> tf.Tensor:
    """LayerNorm of residual + dropout(x + bias); x, residual and `kept` are [tokens, hidden]."""
    x = add_bias(x, bias)
    x = x if kept is None else tf.where(kept, x / keep_prob, tf.zeros_like(x))
    total = tf.cast(residual + x, tf.float32)
    mean, variance = tf.nn.moments(total, axes=[-1], keepdims=True)
    return tf.cast(tf.nn.batch_normalization(total, mean, variance, beta, gamma, epsilon), x.dtype)


def shape_of(x: tf.Tensor) -> list[Any]:
    """Returns the sizes of the axes, as numbers where they are known."""
    dynamic = tf.shape(x)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(x.shape)]


def fan_out(kernels: Sequence[tf.Tensor], uses: int, *, dtype: tf.DType, training: bool | None) -> list[tf.Tensor]:
    """Returns `uses` times the float32 `kernels` [in, out] side by side in `dtype`; gradients are summed in float32."""
    if not training:
        return [tf.cast(tf.concat(kernels, axis=1), dtype)] * uses

    @tf.custom_gradient
    def cast_once(*kernels: tf.Tensor) -> Any:
        together = tf.cast(tf.concat(kernels, axis=1), dtype)
        widths = [kernel.shape[1] for kernel in kernels]
        return [tf.identity(together) for _ in range(uses)], lambda *upstream: tf.split(_sum(upstream), widths, axis=1)

    return cast_once(*kernels)


@_compiled
def _sum(terms: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds in float32, the last first: the gradient of the deepest layer is there first."""
    total = tf.cast(terms[-1], tf.float32)
    for term in reversed(terms[:-1]):
        total += tf.cast(term, tf.float32)
    return total


def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x [tokens, width] + bias [width]; right after a product it becomes part of it."""
    return tf.nn.bias_add(x, tf.cast(bias, x.dtype))
