import dataclasses
import math

import pytest

from albert_tf.errors import UserError
from albert_tf.settings.options import option, require


@dataclasses.dataclass
class Example:
    """An option of each kind."""

    name: str = option("A name.")
    count: int | None = option("A count.", default=None, choices=("1", "2"))


def test_an_option_keeps_its_help_text_default_and_choices():
    name, count = dataclasses.fields(Example)
    assert (name.metadata["help"], name.default) == ("A name.", dataclasses.MISSING)
    assert (count.metadata["choices"], count.default) == (("1", "2"), None)


def test_bounds_are_stated_with_what_was_received():
    require(Example("a"), "count", at_least=1)  # None is no value
    require(Example("a", 1), "count", at_least=1, at_most=1)
    with pytest.raises(UserError, match="--count must be at least 2; received 1"):
        require(Example("a", 1), "count", at_least=2)
    with pytest.raises(UserError, match="--count must be from 2 to 3; received 4"):
        require(Example("a", 4), "count", at_least=2, at_most=3)
    with pytest.raises(UserError, match=r"--count must be from 0 to 9223372036854775807; received 9223372036854775808"):
        require(Example("a", 2**63), "count", at_least=0)
    with pytest.raises(UserError, match="received inf"):
        require(Example("a", math.inf), "count", at_least=0)
    with pytest.raises(UserError, match="--count must be at least 0; received nan"):
        require(Example("a", math.nan), "count", at_least=0)
