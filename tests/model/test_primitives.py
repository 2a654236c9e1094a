from albert_tf.model import primitives


def test_initial_values_are_a_normal_cut_at_two_deviations():
    values = primitives.truncated_normal(0.02)((400, 400)).numpy()
    assert abs(values).max() <= 0.04
    assert abs(values.std() - 0.0176) < 0.0003
