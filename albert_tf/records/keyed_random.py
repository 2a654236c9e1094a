"""Random numbers that are a function of a key, many keys at once.

Everything random in the data is drawn from here, keyed by (seed, file, document, pass, ...), so that results do not
depend on the order of work, the number of processes or how examples are grouped into arrays.
The generator is SplitMix64 (Steele et al., OOPSLA 2014) used as a counter-based hash.
"""

import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def _mix(values: np.ndarray) -> np.ndarray:
    values = values ^ (values >> np.uint64(30))
    values = values * _MULTIPLIER_1
    values = values ^ (values >> np.uint64(27))
    values = values * _MULTIPLIER_2
    return values ^ (values >> np.uint64(31))


def derive_keys(keys: np.ndarray | int, value: np.ndarray | int) -> np.ndarray:
    """Returns uint64 keys that depend on `keys` and on the non-negative integers `value`; the arguments broadcast."""
    with np.errstate(over="ignore"):
        keys = np.asarray(keys).astype(np.uint64)
        value = np.asarray(value).astype(np.uint64)
        return _mix(_mix(keys + _GAMMA) ^ (value * _MULTIPLIER_2 + _GAMMA))


def derive_key(seed: int, *values: int) -> np.uint64:
    """Returns one key from a seed and any number of non-negative integers."""
    key = np.asarray(seed % 2**64, np.uint64)
    for value in values:
        key = derive_keys(key, value)
    return np.uint64(key)


def random_bits(keys: np.ndarray, count: int) -> np.ndarray:
    """Returns uint64 [len(keys), count] of random bits; row i depends on keys[i] only, column j on j only."""
    with np.errstate(over="ignore"):
        counters = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
        return _mix(np.asarray(keys, np.uint64)[:, None] + counters[None, :])


def uniforms(keys: np.ndarray, count: int) -> np.ndarray:
    """Returns float64 [len(keys), count], uniform in [0, 1)."""
    return (random_bits(keys, count) >> np.uint64(11)) * 2.0**-53
