"""What a model costs: its weights, the operations of a training step, and the memory of one."""

import math

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import weight_names

_GIB = 2**30
_PROCESS_BYTES = 0.7 * _GIB  # TensorFlow itself
_BYTES_PER_WEIGHT = 16  # float32 weight, gradient and two moments

# Values kept for the backward pass, per token and executed block, in units of the named width. Counted low, on what the
# gradient cannot do without, so that only a run that surely does not fit is refused;
# tests/benchmarks/bench_memory.py prints the estimate beside the peak.
_HIDDEN_VALUES, _INTERMEDIATE_VALUES, _SCORE_VALUES = 8, 2, 1


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
    remat: bool = False,
) -> int:
    """Returns a low estimate of the bytes that one replica needs to train on `batch_size` examples at once."""
    tokens = batch_size * max_seq_length
    blocks = config.num_hidden_layers * config.inner_group_num
    per_token = (
        _HIDDEN_VALUES * config.hidden_size
        + _INTERMEDIATE_VALUES * config.intermediate_size
        + _SCORE_VALUES * config.num_attention_heads * max_seq_length
    )
    kept = blocks * config.hidden_size + per_token if remat else blocks * per_token
    activations = tokens * kept * bytes_per_value
    logits = 2 * batch_size * max_predictions_per_seq * config.vocab_size * 4
    return int(_PROCESS_BYTES + count_weights(config) * _BYTES_PER_WEIGHT + activations + logits)


def step_flops(config: AlbertConfig, *, batch_size: int, max_seq_length: int, max_predictions_per_seq: int) -> float:
    """Returns the floating-point operations of a pre-training step's matrix products, forward and backward.

    Two for each multiplication and addition, and three times the forward pass; padding counts, elementwise work does
    not, nor what is computed again to save memory. Every position of the last block counts, as in the plain model,
    though training leaves out those that no head reads.
    """
    hidden, inner, narrow = config.hidden_size, config.intermediate_size, config.embedding_size
    blocks = config.num_hidden_layers * config.inner_group_num
    a_token = blocks * (4 * hidden * hidden + 2 * hidden * inner + 2 * max_seq_length * hidden)
    a_token += narrow * hidden if narrow != hidden else 0
    a_prediction = hidden * narrow + narrow * config.vocab_size
    an_example = max_seq_length * a_token + max_predictions_per_seq * a_prediction + hidden * hidden
    return 3 * 2.0 * batch_size * an_example
