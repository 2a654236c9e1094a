import json
import unicodedata

import pytest
import tensorflow as tf
from conftest import GOLDEN
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from albert_tf.graph_tokenizer import GraphTokenizer
from albert_tf.tokenizer import SentencePieceTokenizer

UNASSIGNED = ("Cs", "Cn", "Co")
UNICODE_14_CAPITALS = {*"\u2c2f\ua7c0\ua7d0\ua7d6\ua7d8", *map(chr, range(0x10570, 0x10596))} - {
    *map(chr, (0x1057B, 0x1058B, 0x10593))  # holes in the block
}

MODEL = GOLDEN / "tokenization" / "spiece.model"
PAIRS = {
    lower: (tokenizer, GraphTokenizer(tokenizer))
    for lower, tokenizer in ((low, SentencePieceTokenizer.load(MODEL, lower_case=low)) for low in (True, False))
}


def compare(texts, *, lower):
    python, graph = PAIRS[lower]
    normalized = [text.decode() for text in graph.normalize(tf.constant(texts)).numpy()]
    stand_in = [text.replace("\uffff", "\0") for text in normalized]
    assert stand_in == [python.normalize(text).replace("\uffff", "\0") for text in texts]
    assert graph.tokenize(tf.constant(texts)).to_list() == python.encode_batch(texts)


@pytest.mark.parametrize("lower", [True, False])
def test_ids_are_those_of_the_python_tokenizer_on_every_golden_string(lower):
    lines = (GOLDEN / "tokenization" / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
    compare([json.loads(line)["text"] for line in lines], lower=lower)


def test_digits_and_commas_need_no_code_in_the_graph():
    texts = [f"{number:,} a{number:,}b, {number}," for number in range(0, 10**7, 12_345)]
    python, graph = PAIRS[True]
    ours, theirs = python.encode_batch(texts), graph.tokenize(tf.constant(texts)).to_list()
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    # "666" is 6 66 or 66 6 at the same score, and two versions of SentencePiece break that tie in two ways.
    assert all(sorted(a) == sorted(b) for a, b in different)
    assert len(different) < 0.05 * len(texts)  # each text has four long numbers; 18 of 811 differ


def test_every_assigned_character_agrees():
    texts = [f"a{chr(p)}b {chr(p)}" for p in range(1, 0x110000) if unicodedata.category(chr(p)) not in UNASSIGNED]
    assert len(texts) > 140_000
    python, graph = PAIRS[True]
    normalized = [text.decode() for text in graph.normalize(tf.constant(texts)).numpy()]
    different = {text[1] for text, n in zip(texts, normalized, strict=True) if n != python.normalize(text)}
    assert different == UNICODE_14_CAPITALS
    assert graph.tokenize(tf.constant(texts)).to_list() == python.encode_batch(texts)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"])), st.booleans())
def test_any_text_agrees(text, lower):
    assume(not UNICODE_14_CAPITALS & set(text))
    compare([text], lower=lower)


def test_bytes_that_are_not_utf8_become_replacement_characters():
    python, graph = PAIRS[True]
    assert graph.tokenize(tf.constant([b"good \xff bad"])).to_list() == [python.encode("good \ufffd bad")]


def test_a_nul_does_not_cut_the_text():
    compare(["before\0after", "\0", "a\0\0 B\0"], lower=True)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The capital of France is [MASK].", "▁the ▁capital ▁of ▁france ▁is [MASK] ."),
        ("[MASK] is [MASK] [MASK][MASK]", "[MASK] ▁is [MASK] [MASK] [MASK]"),
        ("un[MASK]able [mask]", "▁un [MASK] able ▁[ mask ]"),
        ("", ""),
    ],
)
def test_the_mask_takes_the_space_before_it_and_leaves_the_space_after_it(text, pieces):
    python, graph = PAIRS[True]
    assert python.pieces(graph.tokenize_masked(tf.constant([text])).to_list()[0]) == pieces.split()


def test_masking_a_piece_in_the_text_is_masking_its_id():
    """The likeliest cut of a text stays so in front of each of its pieces and behind it."""
    python, graph = PAIRS[True]
    text = python.normalize("Oh dear! said the Rabbit; I've lost my gloves, unbelievably un-rabbit-like.")
    ids = python.encode(text)
    pieces = python.pieces(ids)
    for i, piece in enumerate(pieces):
        space = " " if piece.startswith("▁") else ""
        parts = ["".join(pieces[:i]), space + "[MASK]", "".join(pieces[i + 1 :])]
        masked = graph.tokenize_masked(tf.constant(["".join(parts).replace("▁", " ")])).to_list()[0]
        assert masked == [*ids[:i], python.mask_id, *ids[i + 1 :]]


def test_text_cannot_forge_the_mask():
    python, graph = PAIRS[True]
    texts = ["[MASK]", "a \ufffe b", "\ufffe[MASK]"]
    assert all(python.mask_id not in row for row in graph.tokenize(tf.constant(texts)).to_list())
    assert graph.tokenize_masked(tf.constant(texts[1:])).to_list()[0] == python.encode("a \uffff b")
