import numpy as np

from albert_tf.records.keyed_random import derive_key, derive_keys, random_bits, uniforms


def test_rows_depend_on_their_own_key_only():
    keys = derive_keys(np.uint64(7), np.arange(100))
    together = random_bits(keys, 5)
    assert np.array_equal(together[40:41], random_bits(keys[40:41], 5))
    assert np.array_equal(together, random_bits(keys, 9)[:, :5])


def test_keys_differ_by_every_part():
    keys = {int(derive_key(seed, *place)) for seed in range(20) for place in [(0, 0), (0, 1), (1, 0), (1,), ()]}
    assert len(keys) == 100


def test_uniforms_are_uniform_within_and_across_keys():
    values = uniforms(derive_keys(np.uint64(3), np.arange(2000)), 50)
    assert values.min() >= 0 and values.max() < 1
    standard_error = np.sqrt(1 / 12 / values.size)
    assert abs(values.mean() - 0.5) < 5 * standard_error
    assert abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < 0.1
    counts = np.bincount((values * 16).astype(int).ravel(), minlength=16)
    assert ((counts - values.size / 16) ** 2 / (values.size / 16)).sum() < 50  # chi-square, 15 degrees of freedom
