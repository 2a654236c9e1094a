import functools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import activations, fused_ops

MASK = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
KEPT = tf.constant(np.random.default_rng(9).random((10, 6)) < 0.75)


def normal(*shape, seed=0):
    return tf.random.stateless_normal(shape, [3, seed])


def norm_inputs():
    return normal(10, 6), normal(6, seed=1), normal(10, 6, seed=2), normal(6, seed=3), normal(6, seed=4)


probabilities = functools.partial(fused_ops.attention_probabilities, input_mask=MASK, scale=0.5)
norm = functools.partial(fused_ops.residual_norm, epsilon=1e-12)
CASES = {
    **{name: (fused_ops.bias_activation(name), (normal(7, 6), normal(6, seed=1))) for name in activations.ACTIVATIONS},
    "probabilities": (probabilities, (normal(2, 3, 5, 5),)),
    "norm": (functools.partial(norm, keep_prob=1.0), norm_inputs()),
    "norm and dropout": (lambda *x, training: norm(*x, KEPT, keep_prob=0.75, training=training), norm_inputs()),
    "dropout": (lambda x, training: fused_ops.drop(x, KEPT, keep_prob=0.75, training=training), (normal(10, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled_values_and_gradients_are_the_plain_ones(name):
    function, inputs = CASES[name]
    results = []
    for training in (False, True):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs, training=training)
        upstream = normal(*output.shape, seed=5)
        results.append([output, *tape.gradient(output, inputs, output_gradients=upstream)])
    for plain, compiled in zip(*results, strict=True):
        assert np.abs(plain - compiled).max() < 2e-6


def test_compiled_functions_round_once():
    x = tf.cast(normal(1000, 6), tf.bfloat16)
    exact = activations.gelu_tanh(tf.cast(x, tf.float32))
    rounded = fused_ops.bias_activation("gelu_tanh")(x, tf.zeros([6]), training=True)
    assert rounded.dtype == tf.bfloat16
    assert np.array_equal(tf.cast(rounded, tf.float32), tf.cast(tf.cast(exact, tf.bfloat16), tf.float32))


def test_padding_has_no_probability_and_rows_sum_to_one():
    values = probabilities(normal(2, 3, 5, 5), training=True).numpy()
    assert np.allclose(values.sum(-1), 1.0, atol=1e-6)
    assert values[1, :, :, 3:].max() < 1e-30 and values[0].min() > 0


def test_only_training_is_compiled_by_xla():
    def nodes(training):
        function = tf.function(lambda x: probabilities(x, training=training)).get_concrete_function(normal(2, 3, 5, 5))
        return [node for node in function.graph.as_graph_def().node if "_XlaMustCompile" in node.attr]

    assert not nodes(False) and nodes(True)


def test_kernels_side_by_side_have_gradients_summed_in_float32():
    kernels = [tf.Variable(normal(4, 3, seed=s)) for s in range(3)]
    with tf.GradientTape() as tape:
        uses = fused_ops.fan_out([tf.convert_to_tensor(k) for k in kernels], 600, dtype=tf.bfloat16, training=True)
        # In bfloat16 a sum of ones stops at 256.
        total = sum(tf.reduce_sum(tf.cast(use, tf.float32)) for use in uses)
    assert {use.shape for use in uses} == {(4, 9)} and {use.dtype for use in uses} == {tf.bfloat16}
    assert all(np.array_equal(gradient, np.full((4, 3), 600.0)) for gradient in tape.gradient(total, kernels))


def test_known_sizes_are_numbers():
    sizes = []

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def run(x):
        sizes.extend(fused_ops.shape_of(x))
        return x

    run(normal(2, 4))
    assert sizes[1] == 4 and isinstance(sizes[0], tf.Tensor)
