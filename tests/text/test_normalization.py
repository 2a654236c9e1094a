import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from albert_tf.text.normalization import (
    AlignedText,
    character_class,
    character_ranges,
    drop,
    hex_character_class,
    is_combining,
    is_nonspacing_mark,
)


def decompose(text):
    return unicodedata.normalize("NFKD", text)


def spans_of(aligned, original):
    return [(c, original[s:e]) for c, s, e in zip(aligned.text, aligned.starts, aligned.ends, strict=True)]


def test_each_character_knows_where_it_comes_from():
    text = "  \u00c9t\u00e9 \n\ufb01ne \u00bd\u0130"
    aligned = AlignedText.of(text).collapse_spaces()
    for step in (decompose, drop(is_combining), str.lower):
        aligned = aligned.apply(step)
    assert spans_of(aligned, text) == [
        ("e", "\u00c9"), ("t", "t"), ("e", "\u00e9"), (" ", " \n"), ("f", "\ufb01"), ("i", "\ufb01"), ("n", "n"),
        ("e", "e"), (" ", " "), ("1", "\u00bd"), ("\u2044", "\u00bd"), ("2", "\u00bd"), ("i", "\u0130"),
    ]  # fmt: skip


def test_a_dropped_mark_belongs_to_the_letter_before_it_and_a_dropped_control_to_nothing():
    text = "\u0301e\u0301\u0302x\x00y"
    aligned = AlignedText.of(text).apply(drop(is_combining)).apply(drop(lambda character: character == "\0"))
    assert spans_of(aligned, text) == [("e", "e\u0301\u0302"), ("x", "x"), ("y", "y")]


def test_an_empty_span_stands_before_the_next_character_or_at_the_end():
    aligned = AlignedText.of(" ab").collapse_spaces()
    assert [aligned.span(i, i) for i in range(3)] == [(1, 1), (2, 2), (3, 3)]


@given(st.text())
def test_collapsed_spaces_are_those_of_split(text):
    aligned = AlignedText.of(text).collapse_spaces()
    assert aligned.text == " ".join(text.split())
    for character, source in spans_of(aligned, text):
        assert source.isspace() if character == " " else source == character


@given(st.text())
def test_steps_give_the_same_text_with_and_without_alignment(text):
    aligned = AlignedText.of(text)
    for step in (decompose, drop(is_nonspacing_mark), str.lower):
        aligned, text = aligned.apply(step), step(text)
        assert aligned.text == text
        assert len(aligned.starts) == len(aligned.ends) == len(text)


def test_character_classes_hold_exactly_the_characters():
    marks = {point for point in range(0x110000) if unicodedata.combining(chr(point))}
    ranges = character_ranges(is_combining)
    assert {point for first, last in ranges for point in range(first, last + 1)} == marks
    assert all(after[0] > before[1] + 1 for before, after in zip(ranges, ranges[1:], strict=False))
    assert hex_character_class(lambda c: c in "abz") == r"[\x{61}-\x{62}\x{7a}-\x{7a}]"
    everything = "".join(map(chr, range(0x110000)))
    assert {ord(c) for c in re.findall(f"[{character_class(is_combining)}]", everything)} == marks
