import time

import pytest
import tensorflow as tf
from commands import run

from albert_tf.errors import UserError
from albert_tf.training import distribution

PROGRAM = """
import sys
from albert_tf.training import distribution
from albert_tf.errors import UserError
for tpu in sys.argv[1:]:
    try:
        distribution.make_strategy(tpu)
    except UserError as error:
        print(error)
"""


def test_a_tpu_that_is_not_there_ends_in_one_sentence_within_a_minute():
    """In a process of its own: connecting resets TensorFlow."""
    for tpu in ("local", "grpc://127.0.0.1:1", "my-tpu"):
        began = time.monotonic()
        process = run("-c", PROGRAM, tpu, timeout=60)
        assert time.monotonic() - began < 60
        assert process.returncode == 0
        assert process.stdout.startswith(f"--tpu={tpu}: ") and process.stdout.count("\n") == 1, process.stdout
        assert len(process.stdout) < 450 and "attrs" not in process.stdout


def test_without_a_tpu_the_default_strategy_is_used():
    assert distribution.make_strategy(None) is tf.distribute.get_strategy()


def test_replicas_must_divide_the_batch():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert distribution.check_batch_size(6, strategy, flag="train_batch_size") == 3
    with pytest.raises(UserError, match="multiple of their number; received 5 and 2 replicas"):
        distribution.check_batch_size(5, strategy, flag="train_batch_size")
