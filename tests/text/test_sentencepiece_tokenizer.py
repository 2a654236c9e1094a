import json

import numpy as np
import pytest
import sentencepiece
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.text.tokenizer_files import SentencePieceTokenizer, TokenizerSettings

TOKENIZATION = GOLDEN / "tokenization"


def read_lines(name):
    return [json.loads(line) for line in (TOKENIZATION / name).read_text(encoding="utf-8").splitlines()]


def test_ids_are_the_originals_on_every_golden_string(english_tokenizer):
    cases = read_lines("sentencepiece.jsonl")
    assert len(cases) == 217
    cased = SentencePieceTokenizer.load(TOKENIZATION / "spiece.model", lower_case=False)
    for case in cases:
        assert english_tokenizer.normalize(case["text"]) == case["ref_text"]
        assert english_tokenizer.encode(case["text"]) == case["ref_ids"], case["id"]
        assert cased.encode(case["text"]) == case["ref_cased_ids"], case["id"]


def test_digit_comma_rule_in_mid_word():
    tokenizer = SentencePieceTokenizer.load(TOKENIZATION / "tiny_digit_comma.model")
    different = [
        c["text"] for c in read_lines("tiny_digit_comma.jsonl") if tokenizer.encode(c["text"]) != c["strip_ids"]
    ]
    # With the piece "12," out of reach the best path begins with another piece: "▁1 2" and not "▁ 1 2".
    assert different == ["12,000"]


def test_the_digit_comma_rule_is_applied_once(english_tokenizer, tmp_path):
    english_tokenizer.save(tmp_path)
    again = SentencePieceTokenizer.load(tmp_path)
    assert again.model == english_tokenizer.model
    assert again.fingerprint == english_tokenizer.fingerprint
    assert english_tokenizer.model != (TOKENIZATION / "spiece.model").read_bytes()


def test_special_ids_are_alberts(english_tokenizer):
    t = english_tokenizer
    assert (t.pad_id, t.unk_id, t.cls_id, t.sep_id, t.mask_id) == (0, 1, 2, 3, 4)
    assert t.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert t.ordinary_ids.tolist() == list(range(5, 30_000))
    assert t.pieces(range(5, 13)) == ["(", ")", '"', "-", ".", "–", "£", "€"]


@pytest.mark.parametrize("literal", ["[CLS]", "[SEP]", "[MASK]", "<pad>", "a [MASK] b", "[CLS][SEP]"])
def test_literal_control_pieces_in_text_are_ordinary_text(english_tokenizer, literal):
    cased = SentencePieceTokenizer.load(TOKENIZATION / "spiece.model", lower_case=False)
    for tokenizer in (english_tokenizer, cased):
        assert not {0, 2, 3, 4} & set(tokenizer.encode(literal))


@settings(max_examples=200)
@given(st.text())
def test_no_text_makes_a_control_id(english_tokenizer, text):
    ids = english_tokenizer.encode(text)
    assert not {0, 2, 3, 4} & set(ids)
    assert english_tokenizer.encode_batch([text, ""]) == [ids, []]


def test_word_starts_agree_with_the_originals_token_boundaries(english_tokenizer):
    records = np.load(GOLDEN / "pretraining_records" / "alice_seq64.npz")
    targets = np.zeros_like(records["input_ids"], bool)
    rows = np.arange(len(targets))[:, None]
    targets[rows, records["masked_lm_positions"]] = records["masked_lm_weights"] > 0
    plain = (records["input_mask"] == 1) & (records["input_ids"] > 3) & ~targets
    assert plain.sum() > 10_000
    starts = english_tokenizer.word_starts[records["input_ids"]]
    assert np.array_equal(starts[plain], records["token_boundary"][plain] == 1)


def test_accents_are_kept_where_the_settings_say_so(english_tokenizer):
    keeping = SentencePieceTokenizer(english_tokenizer.model, TokenizerSettings(strip_accents=False))
    assert keeping.normalize(" Caf\u00e9  \u2460 \ud55c") == "caf\u00e9 \u2460 \ud55c"
    assert english_tokenizer.normalize("Caf\u00e9 \u2460") == "cafe 1"
    assert keeping.decode(keeping.encode("caf\u00e9 \u00bd")) != "cafe 1\u20442"  # \u00e9 stays, and has no piece


def test_a_lone_surrogate_is_a_replacement_character(english_tokenizer):
    assert english_tokenizer.encode("a \ud83d b") == english_tokenizer.encode("a \ufffd b")


def test_files_that_are_no_albert_model_are_refused(tmp_path):
    listing = tmp_path / "30k-clean.vocab"
    listing.write_text("<pad>\t0\n<unk>\t0\n▁the\t-3.4\n", encoding="utf-8")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        SentencePieceTokenizer.load(listing)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        SentencePieceTokenizer.load(tmp_path / "none.model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words of text to learn from"] * 20), model_prefix=str(tmp_path / "other"),
        vocab_size=20, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(UserError, match="no piece '<pad>'"):
        SentencePieceTokenizer.load(tmp_path / "other.model")


def test_decode_returns_normalised_text(english_tokenizer):
    assert english_tokenizer.decode(english_tokenizer.encode("Hello,  World")) == "hello, world"
