import shutil

import pytest
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.text.tokenizer_files import SentencePieceTokenizer, TokenizerSettings, WordPieceTokenizer, load_tokenizer

MODEL = GOLDEN / "tokenization" / "spiece.model"
VOCABULARY = GOLDEN / "tokenization" / "vocab_chinese.txt"


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        (MODEL, "spiece.model", SentencePieceTokenizer),
        (MODEL, "30k-clean.model", SentencePieceTokenizer),
        (VOCABULARY, "vocab.txt", WordPieceTokenizer),
        (VOCABULARY, "vocab_chinese.txt", WordPieceTokenizer),
    ],
)
def test_the_kind_is_found_from_the_content_of_a_file_or_of_a_released_directory(source, name, kind, tmp_path):
    shutil.copyfile(source, tmp_path / name)
    for path in (tmp_path / name, str(tmp_path)):
        assert type(load_tokenizer(path)) is kind
    assert load_tokenizer(tmp_path, lower_case=False).settings.lower_case is False


@pytest.mark.parametrize(
    ("source", "kind"), [(MODEL, SentencePieceTokenizer), (VOCABULARY, WordPieceTokenizer)], ids=["sp", "wp"]
)
def test_a_saved_directory_comes_back(source, kind, tmp_path):
    tokenizer = kind(source.read_bytes(), TokenizerSettings(lower_case=False))
    tokenizer.save(tmp_path)
    (tmp_path / "other.model").touch()
    again = load_tokenizer(tmp_path)
    assert type(again) is kind
    assert again.fingerprint == tokenizer.fingerprint
    with pytest.raises(UserError, match="says lower_case=False, and the flag asks for True"):
        load_tokenizer(tmp_path, lower_case=True)


def test_a_path_without_one_tokenizer_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    shutil.copyfile(MODEL, tmp_path / "spiece.model")
    shutil.copyfile(VOCABULARY, tmp_path / "vocab.txt")
    with pytest.raises(UserError, match="holds several tokenizers: spiece.model, vocab.txt; name one"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load_tokenizer(tmp_path / "none.model")


def test_a_listing_of_a_sentencepiece_vocabulary_is_refused(tmp_path):
    listing = tmp_path / "30k-clean.vocab"
    listing.write_text("<pad>\t0\n<unk>\t0\n[CLS]\t0\n\u2581the\t-3.4\n", encoding="utf-8")
    with pytest.raises(UserError, match="a .vocab listing cannot be used"):
        load_tokenizer(listing)


def test_an_unknown_kind_in_the_settings_is_refused(tmp_path):
    WordPieceTokenizer.load(VOCABULARY).save(tmp_path)
    settings = tmp_path / "tokenizer_settings.json"
    settings.write_text(settings.read_text(encoding="utf-8").replace("wordpiece", "bytes"), encoding="utf-8")
    with pytest.raises(UserError, match="unknown kind 'bytes'; known are sentencepiece, wordpiece"):
        load_tokenizer(tmp_path / "vocab.txt")
