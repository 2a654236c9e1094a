"""The lines that close a pre-training run: how good, how fast, where, and what to do next."""

import sys
from collections.abc import Mapping
from pathlib import Path


def summary_lines(
    metrics: Mapping[str, float] | None,
    *,
    step: int,
    num_train_steps: int,
    output_dir: str,
    num_held_out: int,
    best: tuple[int, float] | None,
    tokens_per_second: float | None,
) -> list[str]:
    """Returns the summary at `step` from its held-out metrics; `best` is step and loss of the best checkpoint."""
    lines = ["", f"Step {step:,} of {num_train_steps:,}; checkpoints and metrics are in {output_dir}"]
    if metrics and num_held_out:
        lines += [f"On {num_held_out:,} held-out examples:", *_quality(metrics)]
    if best and best[0] != step:
        lines.append(f"The best held-out loss was {best[1]:.3f} at step {best[0]:,}; its checkpoint is kept")
    if tokens_per_second is not None:
        lines.append(f"Training speed: {tokens_per_second:,.0f} tokens a second (median, padding not counted)")
    return lines


def export_lines(exported: Path) -> list[str]:
    """Returns the lines that say where an export is, and how to try it."""
    load = f"tf.saved_model.load('{exported}').signatures['serving_default']"
    call = f"import tensorflow as tf, tensorflow_text; print({load}(tf.constant(['Call me Ishmael.'])))"
    return [f"Export: {exported}", "Try it:", f'  {sys.executable} -c "{call}"']


def _quality(metrics: Mapping[str, float]) -> list[str]:
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
