"""An estimate of the memory that training needs, so that a hopeless run ends in a sentence at its start."""

import math
import os
from collections.abc import Callable
from pathlib import Path

from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.weight_maps import weight_names

_GIB = 2**30
_PROCESS_BYTES = 0.7 * _GIB  # TensorFlow itself
_BYTES_PER_WEIGHT = 16  # float32 weight, gradient and two moments

# Values kept for the backward pass, per token and executed block, in units of the named width. Counted low, on what the
# gradient cannot do without, so that only a run that surely does not fit is refused: 0.6 to 0.9 of the peaks that
# tests/benchmarks/bench_memory.py prints.
_HIDDEN_VALUES, _INTERMEDIATE_VALUES, _SCORE_VALUES = 8, 3, 2


def count_weights(config: AlbertConfig) -> int:
    """Returns the number of weights of the encoder, without building it."""
    return sum(math.prod(name.shape) for name in weight_names(config, heads=()))


def estimate_training_bytes(
    config: AlbertConfig,
    *,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
    bytes_per_value: int,
) -> int:
    """Returns a low estimate of the bytes that one replica needs to train on `batch_size` examples at once."""
    tokens = batch_size * max_seq_length
    blocks = config.num_hidden_layers * config.inner_group_num
    per_token = (
        _HIDDEN_VALUES * config.hidden_size
        + _INTERMEDIATE_VALUES * config.intermediate_size
        + _SCORE_VALUES * config.num_attention_heads * max_seq_length
    )
    activations = tokens * blocks * per_token * bytes_per_value
    logits = 2 * batch_size * max_predictions_per_seq * config.vocab_size * 4
    return int(_PROCESS_BYTES + count_weights(config) * _BYTES_PER_WEIGHT + activations + logits)


def check_host_memory(estimate: Callable[..., int], *, batch_size: int) -> None:
    """Raises UserError where the machine has less memory available than `estimate(batch_size=batch_size)` bytes."""
    available = available_host_bytes()
    needed = estimate(batch_size=batch_size)
    if available is None or needed <= available:
        return
    fixed = estimate(batch_size=0)
    largest = int((available - fixed) / (estimate(batch_size=1) - fixed))
    advice = "Not even one example fits: use a smaller model"
    if largest > 0:
        advice = (
            f"At most {largest} may fit: lower --train_batch_size (and --learning_rate, by the square root of the "
            "ratio), or make shorter records"
        )
    raise UserError(
        f"training with --train_batch_size={batch_size} needs at least {needed / _GIB:.1f} GiB of memory, and this "
        f"machine has {available / _GIB:.1f} GiB available. {advice}"
    )


def available_host_bytes() -> int | None:
    """Returns the memory that this process may still take, by /proc/meminfo and the control group; None if unknown."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except OSError:
        return None
    for limit_file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if os.path.exists(limit_file):
            text = Path(limit_file).read_text().strip()
            limits += [int(text)] if text.isdecimal() else []
    return min(limits, default=None)
