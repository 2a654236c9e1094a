"""Dataclass fields that are flags, and the bounds of their values."""

import dataclasses
import math
from typing import Any

from albert_tf.errors import UserError


def option(help_text: str, *, default: Any = dataclasses.MISSING, choices: tuple[str, ...] | None = None) -> Any:
    """Declares a dataclass field that is a flag with this help text."""
    return dataclasses.field(default=default, metadata={"help": help_text, "choices": choices})


def require(config: Any, name: str, *, at_least: float, at_most: float = math.inf) -> None:
    """Raises UserError unless the field is None or within the bounds."""
    value = getattr(config, name)
    if value is None or at_least <= value <= at_most:
        return
    bounds = f"at least {at_least}" if at_most == math.inf else f"from {at_least} to {at_most}"
    raise UserError(f"--{name} must be {bounds}; received {value}")
