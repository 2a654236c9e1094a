"""Normalisation of text in steps, and where in the original text each character of the result comes from."""

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

# A function of text that works character by character, but for the order of combining characters and the form of a
# final sigma: the length of the result is the sum of the lengths for the characters.
Step = Callable[[str], str]

Span = tuple[int, int]  # [start, end) in characters


class AlignedText(NamedTuple):
    """Text, and for each of its characters the span [start, end) of the original text that it came from."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: str) -> Self:
        """Returns the original text itself."""
        return cls(text, range(len(text)), range(1, len(text) + 1))

    def span(self, start: int, end: int) -> Span:
        """Returns the span of the original text that the characters [start, end) of this text came from."""
        if start < end:
            return self.starts[start], self.ends[end - 1]
        place = self.starts[start] if start < len(self.text) else self.ends[-1]
        return place, place

    def apply(self, step: Step) -> "AlignedText":
        """Returns the text after `step`; a mark that the step drops belongs to the character before it."""
        text = step(self.text)
        if text == self.text:
            return self
        lengths = {character: len(step(character)) for character in set(self.text)}
        starts: list[int] = []
        ends: list[int] = []
        for character, start, end in zip(*self, strict=True):
            length = lengths[character]
            starts += [start] * length
            ends += [end] * length
            if not length and ends and unicodedata.category(character).startswith("M"):
                ends[-1] = end
        return AlignedText(text, starts, ends)

    def collapse_spaces(self) -> "AlignedText":
        """Returns the text with each run of white space as one space, and none at either end."""
        text = " ".join(self.text.split())
        if text == self.text:
            return self
        starts: list[int] = []
        ends: list[int] = []
        for word in re.finditer(r"\S+", self.text):
            if ends:
                starts.append(ends[-1])
                ends.append(self.starts[word.start()])
            starts += self.starts[word.start() : word.end()]
            ends += self.ends[word.start() : word.end()]
        return AlignedText(text, starts, ends)


@functools.cache
def drop(contains: Callable[[str], bool]) -> Step:
    """Returns the step that leaves out the characters for which `contains` is true."""
    return functools.partial(re.compile(f"[{character_class(contains)}]+").sub, "")


def is_combining(character: str) -> bool:
    """Whether Unicode puts a character above, below or beside the one before it."""
    return unicodedata.combining(character) != 0


def is_nonspacing_mark(character: str) -> bool:
    """Whether a character is of Unicode's category Mn."""
    return unicodedata.category(character) == "Mn"


def character_class(contains: Callable[[str], bool]) -> str:
    """Returns the characters for which `contains` is true, as they stand between the brackets of an expression."""
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in character_ranges(contains))


def hex_character_class(contains: Callable[[str], bool]) -> str:
    """Returns the same as a class of RE2 and Oniguruma, whose \\s, \\p{Mn} and \\p{P} are other sets than Python's."""
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in character_ranges(contains)) + "]"


def character_ranges(contains: Callable[[str], bool]) -> list[tuple[int, int]]:
    """Returns the ranges of code points, ends included, for which `contains` is true."""
    ranges: list[tuple[int, int]] = []
    for point in filter(lambda point: contains(chr(point)), range(sys.maxunicode + 1)):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1] = ranges[-1][0], point
        else:
            ranges.append((point, point))
    return ranges
