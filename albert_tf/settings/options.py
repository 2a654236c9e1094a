"""Dataclass fields that are flags, and the bounds of their values."""

import dataclasses
from typing import Any

from albert_tf.architecture.weight_names import LABEL_HEADS
from albert_tf.errors import UserError


def option(
    help_text: str, *, default: Any = dataclasses.MISSING, choices: tuple[str, ...] | None = None, url: bool = False
) -> Any:
    """Declares a dataclass field that is a flag with this help text; one that is not `url` refuses scheme://..."""
    return dataclasses.field(default=default, metadata={"help": help_text, "choices": choices, "url": url})


def label_head_option() -> Any:
    """Declares the flag --label_head of the commands that read checkpoints."""
    return option(
        "Which head the output_weights of a TF1 checkpoint is. Unset: sequence_classification.",
        default=None,
        choices=LABEL_HEADS,
    )


def longest_input_option() -> Any:
    """Declares the flag --max_seq_length of the commands that answer texts."""
    return option("Longest input in tokens, [CLS] and [SEP] included. Unset: the model's positions.", default=None)


_LARGEST = 2**63 - 1  # of TensorFlow's integers


def require(config: Any, name: str, *, at_least: float, at_most: float = _LARGEST) -> None:
    """Raises UserError unless the field is None or within the bounds."""
    value = getattr(config, name)
    if value is None or at_least <= value <= at_most:
        return
    unbounded = at_most == _LARGEST and not value > at_most
    bounds = f"at least {at_least}" if unbounded else f"from {at_least} to {at_most}"
    raise UserError(f"--{name} must be {bounds}; received {value}")


PRECISIONS = ("auto", "float32", "bfloat16")

MIN_SEQ_LENGTH = 8  # of records made by other programs
