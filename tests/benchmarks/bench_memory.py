"""Prints the peak memory of a few training steps beside the estimate that refuses hopeless batches.

    python tests/benchmarks/bench_memory.py base 16 128 float32     # configuration, batch, sequence length, precision
    python tests/benchmarks/bench_memory.py base 16 128 float32 remat

The estimate is low on purpose, so that only a run that surely does not fit is refused.
"""

import os
import resource
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from albert_tf.architecture import costs
from albert_tf.architecture.config import AlbertConfig
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.precision import dtype_policy
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.training.step import Objective, Trainee, train_step


def main() -> None:
    """Runs two steps and prints both numbers."""
    name, batch_size, length, precision = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    remat = sys.argv[5:] == ["remat"]
    config = AlbertConfig.load(Path(__file__).parents[2] / "configs" / f"albert_{name}.json")
    predictions = max(1, round(0.15 * length))
    model = AlbertWithHeads(config, remat=remat, dtype=dtype_policy(precision))
    variables = named_variables(model)
    schedule = LearningRateSchedule(1e-4, num_train_steps=100, num_warmup_steps=10)
    trainee = Trainee.create(model, variables, AlbertOptimizer("lamb", variables, schedule=schedule))
    objective = Objective(pretraining_loss, pretraining_metric_names(model.head_names))
    widths = {"input_ids": length, "input_mask": length, "segment_ids": length, "masked_lm_positions": predictions,
              "masked_lm_ids": predictions, "next_sentence_labels": 1}  # fmt: skip
    batch = {feature: tf.ones([batch_size, width], tf.int32) for feature, width in widths.items()}
    batch |= {"masked_lm_weights": tf.ones([batch_size, predictions]), "example_weights": tf.ones([batch_size])}
    step = tf.function(lambda: train_step(batch, trainee=trainee, objective=objective, random_seed=1))
    for _ in range(2):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    estimate = costs.estimate_training_bytes(
        config,
        batch_size=batch_size,
        max_seq_length=length,
        max_predictions_per_seq=predictions,
        bytes_per_value=2 if precision == "bfloat16" else 4,
        remat=remat,
    )
    print(
        f"{sys.argv[1:]}: peak {peak / 2**30:.2f} GiB, estimate {estimate / 2**30:.2f} GiB, ratio {estimate / peak:.2f}"
    )


if __name__ == "__main__":
    main()
