import math

import tensorflow as tf

from albert_tf.model import activations


def test_activations_are_those_of_the_papers():
    assert abs(float(activations.gelu_tanh(tf.constant(1.0))) - 0.841192) < 1e-6
    assert abs(float(activations.gelu_erf(tf.constant(1.0))) - 0.5 * (1 + math.erf(2**-0.5))) < 1e-6
