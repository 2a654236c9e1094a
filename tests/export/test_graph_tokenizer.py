import json
import unicodedata

import pytest
import tensorflow as tf
from conftest import GOLDEN, ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from served_answers import normalized_text

from albert_tf.export.graph_tokenizer import make_graph_tokenizer
from albert_tf.text.tokenizer_files import load_tokenizer

UNASSIGNED = ("Cs", "Cn", "Co")
UNICODE_14_CAPITALS = {*"\u2c2f\ua7c0\ua7d0\ua7d6\ua7d8", *map(chr, range(0x10570, 0x10596))} - {
    *map(chr, (0x1057B, 0x1058B, 0x10593))  # holes in the block
}

MODELS = {"sentencepiece": "spiece.model", "wordpiece": "vocab_chinese.txt"}
TOKENIZERS = {
    (kind, lower, strip): load_tokenizer(GOLDEN / "tokenization" / name, lower_case=lower, strip_accents=strip)
    for kind, name in MODELS.items()
    for lower, strip in ((True, True), (False, True), (True, False))
}
PAIRS = {key: (tokenizer, make_graph_tokenizer(tokenizer)) for key, tokenizer in TOKENIZERS.items()}
EVERY_PAIR = pytest.mark.parametrize("key", PAIRS, ids=str)
ENGLISH, CHINESE = ("sentencepiece", True, True), ("wordpiece", True, True)
GOLDEN_TEXTS = [
    json.loads(line)["text"]
    for line in (GOLDEN / "tokenization" / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
]


def normalize(graph, texts):
    return [text.decode() for text in graph.normalize(tf.constant(texts)).numpy()]


def compare(texts, key):
    python, graph = PAIRS[key]
    assert normalize(graph, texts) == [normalized_text(python, text) for text in texts]
    assert graph.tokenize(tf.constant(texts)).to_list() == python.encode_batch(texts)


@EVERY_PAIR
def test_ids_are_those_of_the_python_tokenizer_on_every_golden_string(key):
    compare(GOLDEN_TEXTS, key)


def assigned_characters():
    return [chr(p) for p in range(1, 0x110000) if unicodedata.category(chr(p)) not in UNASSIGNED]


@EVERY_PAIR
def test_assigned_characters_agree(key):
    """All but most ideographs and Hangul syllables, which are alike."""
    characters = assigned_characters()
    alike = ("CJK UNIFIED", "HANGUL SYLL", "TANGUT IDEO", "EGYPTIAN HI")
    some = [c for i, c in enumerate(characters) if i % 50 == 0 or not unicodedata.name(c, "").startswith(alike)]
    assert 30_000 < len(some) < 50_000
    compare([f"a{c}b {c}" for c in some], key)


@pytest.mark.slow
@EVERY_PAIR
def test_every_assigned_character_agrees(key):
    compare([f"a{c}b {c}" for c in assigned_characters()], key)


@EVERY_PAIR
@settings(max_examples=100)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cn"]) | st.sampled_from("a\u03a3. \u4e2d1")))
def test_any_text_agrees(key, text):
    compare([text], key)


def test_capitals_that_tensorflow_does_not_know_are_lowered():
    capitals = "".join(sorted(UNICODE_14_CAPITALS))
    assert tf.strings.lower(capitals, "utf-8").numpy().decode() == capitals  # else the correction is not needed
    for key in (ENGLISH, CHINESE):
        _, graph = PAIRS[key]
        assert normalize(graph, [f"A {capitals}", "B"]) == [f"a {capitals.lower()}", "b"]


@EVERY_PAIR
def test_offsets_are_places_in_the_normalised_text(key):
    _, graph = PAIRS[key]
    texts = [*GOLDEN_TEXTS, "", "a\u200d\u4e2db  \ufffdx\x01 ( y", "a" * 201 + " b"]
    tokenized = graph.tokenize_with_offsets(tf.constant(texts))
    assert [text.decode() for text in tokenized.text.numpy()] == normalize(graph, texts)
    assert tokenized.ids.to_list() == graph.tokenize(tf.constant(texts)).to_list()
    # Of normalised text nothing is changed by a tokenizer that keeps case and accents.
    plain = load_tokenizer(GOLDEN / "tokenization" / MODELS[key[0]], lower_case=False, strip_accents=False)
    for row, text in enumerate(tokenized.text.numpy()):
        ids, spans = plain.encode_with_offsets(text.decode())
        assert tokenized.ids[row].numpy().tolist() == ids
        starts, ends = tokenized.starts[row].numpy().tolist(), tokenized.ends[row].numpy().tolist()
        assert list(zip(starts, ends, strict=True)) == spans, text


def read_shared_texts():
    places = [*ROOT.parent.glob("shared/data/nasty/*"), *ROOT.parent.glob("shared/data/corpus_xx/**/*.txt")]
    lines = [line for place in places for line in place.read_bytes().decode("utf-8", "replace").split("\n")[:100]]
    return [line.replace("\r", "") for line in lines]


@EVERY_PAIR
def test_nasty_texts_and_texts_in_31_languages_agree(key):
    texts = read_shared_texts()
    if not texts:
        pytest.skip("needs ../shared/data")
    python, graph = PAIRS[key]
    assert normalize(graph, texts) == [normalized_text(python, text) for text in texts]
    ours, theirs = python.encode_batch(texts), graph.tokenize(tf.constant(texts)).to_list()
    assert ours == theirs


def test_digits_and_commas_need_no_code_in_the_graph():
    texts = [f"{number:,} a{number:,}b, {number}," for number in range(0, 10**7, 12_345)]
    python, graph = PAIRS[ENGLISH]
    ours, theirs = python.encode_batch(texts), graph.tokenize(tf.constant(texts)).to_list()
    assert ours == theirs


@EVERY_PAIR
def test_bytes_that_are_not_utf8_become_replacement_characters(key):
    python, graph = PAIRS[key]
    assert graph.tokenize(tf.constant([b"good \xff bad"])).to_list() == [python.encode("good \ufffd bad")]


@EVERY_PAIR
def test_a_nul_does_not_cut_the_text(key):
    compare(["before\0after", "\0", "a\0\0 B\0"], key)


@EVERY_PAIR
def test_a_batch_of_nothing_and_texts_of_nothing(key):
    _, graph = PAIRS[key]
    for texts in (tf.zeros([0], tf.string), tf.constant(["", " \u200b"])):
        for tokens in (graph.tokenize(texts), graph.tokenize_masked(texts), graph.tokenize_with_offsets(texts).starts):
            assert tokens.to_list() == [[]] * len(texts)


def test_words_of_200_characters_are_cut_and_longer_ones_are_unknown():
    compare(["a" * 200, "a" * 201 + " b", "\u00e9" * 200], CHINESE)


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
    python, graph = PAIRS[ENGLISH]
    assert python.pieces(graph.tokenize_masked(tf.constant([text])).to_list()[0]) == pieces.split()


def test_masking_a_piece_in_the_text_is_masking_its_id():
    """The likeliest cut of a text stays so in front of each of its pieces and behind it."""
    python, graph = PAIRS[ENGLISH]
    text = python.normalize("Oh dear! said the Rabbit; I've lost my gloves, unbelievably un-rabbit-like.")
    ids = python.encode(text)
    pieces = python.pieces(ids)
    for i, piece in enumerate(pieces):
        space = " " if piece.startswith("▁") else ""
        parts = ["".join(pieces[:i]), space + "[MASK]", "".join(pieces[i + 1 :])]
        masked = graph.tokenize_masked(tf.constant(["".join(parts).replace("▁", " ")])).to_list()[0]
        assert masked == [*ids[:i], python.mask_id, *ids[i + 1 :]]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("\u4e2d[MASK]\u6587 [MASK].", "\u4e2d [MASK] \u6587 [MASK] ."),
        ("in[MASK] [mask]", "in [MASK] [ ma ##sk ]"),
    ],
)
def test_the_mask_is_a_word_of_a_wordpiece_text(text, pieces):
    python, graph = PAIRS[CHINESE]
    assert python.pieces(graph.tokenize_masked(tf.constant([text])).to_list()[0]) == pieces.split()


@pytest.mark.parametrize("key", [ENGLISH, CHINESE], ids=str)
def test_text_cannot_forge_the_mask(key):
    python, graph = PAIRS[key]
    texts = ["[MASK]", "a \ufffe b", "\ufffe[MASK]"]
    assert all(python.mask_id not in row for row in graph.tokenize(tf.constant(texts)).to_list())
    assert graph.tokenize_masked(tf.constant(texts[1:])).to_list()[0] == python.encode("a \uffff b")
