import json
import pickle
import unicodedata

import pytest
import sentencepiece
from conftest import GOLDEN
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.text.tokenizer_files import SentencePieceTokenizer, TokenizerSettings, WordPieceTokenizer

MODELS = {
    SentencePieceTokenizer: GOLDEN / "tokenization" / "spiece.model",
    WordPieceTokenizer: GOLDEN / "tokenization" / "vocab_chinese.txt",
}
KINDS = pytest.mark.parametrize("kind", MODELS)


@KINDS
def test_settings_are_saved_and_a_contradiction_is_refused(kind, tmp_path):
    lower = kind.load(MODELS[kind])
    kind(lower.model, TokenizerSettings(lower_case=False, strip_accents=True)).save(tmp_path)
    cased = kind.load(tmp_path / kind.file_name)
    assert cased.settings == TokenizerSettings(lower_case=False, strip_accents=True)
    assert cased.encode("A") != lower.encode("A")
    assert cased.normalize("\u00c9") == "E"
    with pytest.raises(UserError, match="says lower_case=False, and the flag asks for True"):
        kind.load(tmp_path, lower_case=True)
    with pytest.raises(UserError, match="says strip_accents=True, and the flag asks for False"):
        kind.load(tmp_path, strip_accents=False)
    assert kind.load(tmp_path, lower_case=False).fingerprint == cased.fingerprint


@KINDS
def test_fingerprints_depend_on_model_and_settings(kind):
    model = MODELS[kind].read_bytes()
    tokenizers = [
        kind(model, TokenizerSettings(lower_case=lower, strip_accents=strip))
        for lower in (True, False)
        for strip in (True, False)
    ]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == 4
    assert kind(model).fingerprint == tokenizers[0].fingerprint


def test_accents_follow_the_original_unless_told():
    stripped = {
        (kind, lower): kind.load(MODELS[kind], lower_case=lower).settings.strip_accents
        for kind in MODELS
        for lower in (True, False)
    }
    assert stripped == {
        (SentencePieceTokenizer, True): True,
        (SentencePieceTokenizer, False): True,
        (WordPieceTokenizer, True): True,
        (WordPieceTokenizer, False): False,
    }


@KINDS
def test_a_tokenizer_can_be_sent_to_another_process(kind):
    tokenizer = kind.load(MODELS[kind], lower_case=False)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode("Text \u4e2d") == tokenizer.encode("Text \u4e2d")


@KINDS
@pytest.mark.parametrize("values", [{}, {"kind": "x", "lower_case": 1, "strip_accents": True}, ["lower_case"]])
def test_a_malformed_settings_file_is_refused(kind, values, tmp_path):
    kind.load(MODELS[kind]).save(tmp_path)
    (tmp_path / "tokenizer_settings.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match="must hold"):
        kind.load(tmp_path)


def test_a_model_of_the_other_kind_is_refused(tmp_path):
    WordPieceTokenizer.load(MODELS[WordPieceTokenizer]).save(tmp_path)
    with pytest.raises(UserError, match="is a wordpiece model, not a sentencepiece one"):
        SentencePieceTokenizer.load(tmp_path / "vocab.txt")


TOKENIZERS = {
    f"{kind.kind}-{lower}-{strip}": kind.load(model, lower_case=lower, strip_accents=strip)
    for kind, model in MODELS.items()
    for lower in (True, False)
    for strip in (True, False)
}
SENTENCEPIECE = sentencepiece.SentencePieceProcessor(model_proto=TOKENIZERS["sentencepiece-True-True"].model)
FINAL_SIGMA = str.maketrans("\u03c2", "\u03c3")  # its form depends on the neighbours, which a slice does not have


def surface(tokenizer, text):
    """The normalised text without spaces, as pieces spell it."""
    normalized = tokenizer.normalize(text)
    if tokenizer.kind == "sentencepiece":
        normalized = SENTENCEPIECE.normalize(normalized)
    return "".join(normalized.replace("\u2581", " ").split()).translate(FINAL_SIGMA)


def piece_surfaces(tokenizer, text):
    """How the text spells each piece: unknown pieces are as they stand there."""
    if tokenizer.kind == "sentencepiece":
        return SENTENCEPIECE.encode(tokenizer.normalize(text), out_type=str)
    words = iter(tokenizer.normalize(text).split())
    word, surfaces = "", []
    for piece in tokenizer.pieces(tokenizer.encode(text)):
        word = word if piece.startswith("##") else next(words)
        surfaces.append(word if piece == "[UNK]" else piece.removeprefix("##"))
    return surfaces


def check_offsets(tokenizer, text):
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert len(spans) == len(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    for (start, end), (next_start, next_end) in zip(spans, spans[1:], strict=False):
        assert start <= next_start
        assert end <= next_end or next_start == next_end
    covered = {place for start, end in spans for place in range(start, end)}
    for place in set(range(len(text))) - covered:
        assert not surface(tokenizer, text[place]) or unicodedata.category(text[place]).startswith("M")
    groups = []  # pieces that share a character are compared together
    for (start, end), piece in zip(spans, piece_surfaces(tokenizer, text), strict=True):
        if groups and start < groups[-1][1]:
            groups[-1][1:] = [max(end, groups[-1][1]), groups[-1][2] + piece]
        else:
            groups.append([start, end, piece])
    for start, end, pieces in groups:
        spelt = pieces.replace("\u2581", "").translate(FINAL_SIGMA)
        assert surface(tokenizer, text[start:end]) == spelt, (text[start:end], pieces)
        assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_offsets_are_right_on_every_golden_string(name):
    lines = (GOLDEN / "tokenization" / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        check_offsets(TOKENIZERS[name], json.loads(line)["text"])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150)
@given(
    text=st.text(
        st.one_of(st.characters(), st.sampled_from(" \n\u00bd\ufb01\u0301\u200b\u00ad\x01e\u03a3\u0130\u4e2d\ud55c."))
    )
)
def test_offsets_are_right_for_any_text(name, text):
    assume(unicodedata.normalize("NFD", text) == "".join(unicodedata.normalize("NFD", c) for c in text))
    check_offsets(TOKENIZERS[name], text)


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        ("sentencepiece-True-True", "L \u2019 \u00c9te\u0301 \u00bd \u00bd \u00bd caf\u00e9 s  ( x"),
        ("wordpiece-True-True", "L \u2019 \u00c9t e\u0301 \u00bd caf\u00e9 s ( x"),
    ],
)
def test_offsets_slice_the_original_text(name, slices):
    text = " L\u2019\u00c9te\u0301  \u00bd\u200b caf\u00e9s\x01 ( x"
    _, spans = TOKENIZERS[name].encode_with_offsets(text)
    assert " ".join(text[start:end] for start, end in spans) == slices
