import json
import pickle

import pytest
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.tokenizer import SentencePieceTokenizer, TokenizerSettings, WordPieceTokenizer

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
