"""The lines that close a pre-training run: how good, how fast, where, and what to do next."""

import sys
from pathlib import Path

from albert_tf.train_log import TrainLog


def summary_lines(
    log: TrainLog, *, step: int, num_train_steps: int, output_dir: str, num_held_out: int, exported: Path | None
) -> list[str]:
    """Returns the summary at `step` from the metrics that the run has left."""
    lines = ["", f"Step {step:,} of {num_train_steps:,}; checkpoints and metrics are in {output_dir}"]
    metrics = log.last("eval", step)
    if metrics and num_held_out:
        lines += [f"On {num_held_out:,} held-out examples:", *_quality(metrics)]
    speed = log.median("train", "tokens_per_second")
    if speed is not None:
        lines.append(f"Training speed: {speed:,.0f} tokens a second (median, padding not counted)")
    if exported:
        load = f"tf.saved_model.load('{exported}').signatures['serving_default']"
        call = f"import tensorflow as tf, tensorflow_text; print({load}(tf.constant(['Call me Ishmael.'])))"
        lines += [f"Export: {exported}", "Try it:", f'  {sys.executable} -c "{call}"']
    return lines


def _quality(metrics: dict[str, float]) -> list[str]:
    loss = metrics["masked_lm_loss"]
    lines = [f"  masked tokens   loss {loss:.3f} nats, accuracy {metrics['masked_lm_accuracy']:.3f}"]
    if "masked_lm_unigram_cross_entropy" in metrics:
        unigram = metrics["masked_lm_unigram_cross_entropy"]
        lines.append(
            f"  the same tokens by their frequency alone (unigram cross-entropy): {unigram:.3f} nats; "
            f"the model is {abs(unigram - loss):.3f} {'below' if loss <= unigram else 'ABOVE'}"
        )
    if "sentence_order_accuracy" in metrics:
        lines.append(
            f"  sentence order  accuracy {metrics['sentence_order_accuracy']:.3f}; "
            f"share of swapped pairs {metrics['swapped_share']:.3f}"
        )
    return lines
