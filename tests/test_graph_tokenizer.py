import json
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.graph_tokenizer import GraphTokenizer
from albert_tf.tokenizer import SentencePieceTokenizer
from conftest import GOLDEN

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
    compare([f"{number:,} a{number:,}b, {number}," for number in range(0, 10**7, 12_345)], lower=True)


def test_every_character_of_the_basic_plane_agrees():
    """In batches of letters between other letters; code points that Unicode 14 does not assign are outside."""
    characters = [chr(p) for p in range(1, 0xFFFE) if unicodedata.category(chr(p)) not in ("Cs", "Cn")]
    compare([f"a{character}b {character}" for character in characters], lower=True)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"])), st.booleans())
def test_any_text_agrees(text, lower):
    compare([text], lower=lower)


def test_bytes_that_are_not_utf8_become_replacement_characters():
    python, graph = PAIRS[True]
    assert graph.tokenize(tf.constant([b"good \xff bad"])).to_list() == [python.encode("good \ufffd bad")]


def test_a_nul_does_not_cut_the_text():
    compare(["before\0after", "\0", "a\0\0 B\0"], lower=True)
