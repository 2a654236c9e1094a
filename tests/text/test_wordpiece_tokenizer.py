import json

import pytest
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.text.tokenizer_files import TokenizerSettings, WordPieceTokenizer

TOKENIZATION = GOLDEN / "tokenization"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def chinese():
    return WordPieceTokenizer.load(TOKENIZATION / "vocab_chinese.txt")


def small(*pieces, lower_case=True, strip_accents=None):
    listing = "\n".join([*SPECIAL, *pieces]) + "\n"
    return WordPieceTokenizer(listing.encode(), TokenizerSettings(lower_case=lower_case, strip_accents=strip_accents))


def test_ids_are_the_originals_on_every_golden_string(chinese):
    cased = WordPieceTokenizer.load(TOKENIZATION / "vocab_chinese.txt", lower_case=False)
    lines = (TOKENIZATION / "wordpiece.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 217
    for case in map(json.loads, lines):
        assert chinese.encode(case["text"]) == case["wp_ids"], case["id"]
        assert chinese.pieces(chinese.encode(case["text"])) == case["wp_pieces"], case["id"]
        assert cased.encode(case["text"]) == case["wp_cased_ids"], case["id"]
        assert cased.pieces(cased.encode(case["text"])) == case["wp_cased_pieces"], case["id"]


def test_special_ids_are_those_of_the_chinese_models(chinese):
    t = chinese
    assert (t.vocab_size, t.pad_id, t.unk_id, t.cls_id, t.sep_id, t.mask_id) == (21128, 0, 100, 101, 102, 103)
    assert t.special_ids.tolist() == list(range(104))  # 1 to 99 are [unused1] to [unused99]
    assert t.ordinary_ids.tolist() == list(range(104, 21128))


def test_word_starts_are_the_pieces_that_continue_nothing(chinese):
    ids = chinese.encode("It's 3,500\u5143 antidisestablishment\u4e2d\u6587\uff01")
    starts = [piece for piece, start in zip(chinese.pieces(ids), chinese.word_starts[ids], strict=True) if start]
    assert starts == ["it", "'", "s", "3", ",", "500", "\u5143", "anti", "\u4e2d", "\u6587", "\uff01"]
    assert chinese.word_starts[[chinese.cls_id, chinese.sep_id]].all()


def test_unknown_words_are_one_unknown_piece_each(chinese):
    ids = chinese.encode("the \u1200\u1201 \u1202, a" + "\u1200" * 201)
    assert chinese.pieces(ids) == ["the", "[UNK]", "[UNK]", ",", "[UNK]"]
    assert sum(i == chinese.unk_id for i in ids) == 3


def test_words_of_200_characters_are_cut_and_longer_ones_are_unknown():
    tokenizer = small("a", "##a")
    assert tokenizer.encode("a" * 200) == [5] + [6] * 199
    assert tokenizer.encode("a" * 201) == [tokenizer.unk_id]


def test_the_longest_piece_is_taken_at_each_place():
    tokenizer = small("a", "ab", "##c", "##cd", "##d")
    assert tokenizer.pieces(tokenizer.encode("abcdd ac")) == ["ab", "##cd", "##d", "a", "##c"]
    assert tokenizer.encode("abe") == [tokenizer.unk_id]


def test_case_and_accents_are_independent():
    text = "\u00c9a"
    assert small(lower_case=True, strip_accents=True).normalize(text) == "ea"
    assert small(lower_case=True, strip_accents=False).normalize(text) == "\u00e9a"
    assert small(lower_case=False, strip_accents=True).normalize(text) == "Ea"
    assert small(lower_case=False, strip_accents=False).normalize(text) == text


def test_normalised_text_is_words_between_single_spaces(chinese):
    assert chinese.normalize(" Hi,\u4e2d\u6587\t$5\u00a0x\u200by\x00z\u2028w\ufffd\ud800") == (
        "hi , \u4e2d \u6587 $ 5 xyz w"
    )


@settings(max_examples=300)
@given(st.text(st.characters()))
def test_no_text_makes_a_special_id_and_the_cache_changes_nothing(chinese, text):
    ids = chinese.encode(text)
    assert not {chinese.pad_id, chinese.cls_id, chinese.sep_id, chinese.mask_id} & set(ids)
    assert chinese.encode_batch([text, ""]) == [ids, []]
    assert WordPieceTokenizer(chinese.model).encode(text) == ids
    assert chinese.encode(chinese.normalize(text)) == ids


def test_decode_joins_words(chinese):
    ids = chinese.encode("Hello, \u4e2d\u6587")
    assert chinese.decode([chinese.cls_id, *ids, chinese.sep_id]) == "hello , \u4e2d \u6587"


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        (b"\xff\xfe", "not a WordPiece vocabulary"),
        ("\n".join([*SPECIAL, "a", "a"]).encode(), "each piece once; received 'a' twice"),
        ("\n".join(SPECIAL[:4]).encode(), r"no piece '\[MASK\]'"),
    ],
)
def test_files_that_are_no_vocabulary_are_refused(listing, message):
    with pytest.raises(UserError, match=message):
        WordPieceTokenizer(listing)


def test_line_ends_of_windows_and_a_byte_order_mark_are_accepted():
    listing = "\n".join([*SPECIAL, "a"])
    windows = WordPieceTokenizer(("\ufeff" + listing.replace("\n", "\r\n") + "\r\n").encode())
    assert windows.vocabulary == [*SPECIAL, "a"]
