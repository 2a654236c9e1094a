import json
import shutil

import pytest
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.text.hugging_face_tokenizer import read_hf_tokenizer, write_hf_tokenizer
from albert_tf.text.tokenizer_files import SentencePieceTokenizer, TokenizerSettings, WordPieceTokenizer, load_tokenizer

TOKENIZATION = GOLDEN / "tokenization"
SAVED_BY_TRANSFORMERS = GOLDEN / "hf_tokenizer"
TEXTS = [
    json.loads(line)["text"] for line in (TOKENIZATION / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
]
SOURCES = {"sentencepiece": TOKENIZATION / "spiece.model", "wordpiece": TOKENIZATION / "vocab_chinese.txt"}
KINDS = pytest.mark.parametrize("kind", SOURCES)
SETTINGS = pytest.mark.parametrize("lower_case", [True, False])


def write_config(directory, **values):
    (directory / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")


@KINDS
@pytest.mark.parametrize(("lower_case", "strip_accents"), [(True, False), (False, True)])
def test_what_is_written_is_read_with_and_without_the_model_file(kind, lower_case, strip_accents, tmp_path):
    tokenizer = load_tokenizer(SOURCES[kind], lower_case=lower_case, strip_accents=strip_accents)
    write_hf_tokenizer(tokenizer, tmp_path, max_seq_length=512)
    for path in (tmp_path, tmp_path / tokenizer.file_name):
        assert load_tokenizer(path).fingerprint == tokenizer.fingerprint
    (tmp_path / tokenizer.file_name).unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    again = load_tokenizer(tmp_path)
    assert again.settings == tokenizer.settings
    assert again.special_ids.tolist() == tokenizer.special_ids.tolist()
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


def test_a_unigram_tokenizer_json_of_transformers_gives_the_ids_of_its_model():
    model = SentencePieceTokenizer.load(TOKENIZATION / "tiny_digit_comma.model")
    tokenizer = read_hf_tokenizer(SAVED_BY_TRANSFORMERS / "sentencepiece")
    assert tokenizer.settings == TokenizerSettings(lower_case=True, strip_accents=True)
    assert tokenizer.vocabulary == model.vocabulary
    assert tokenizer.special_ids.tolist() == model.special_ids.tolist()
    assert tokenizer.encode_batch(TEXTS) == model.encode_batch(TEXTS)


def test_a_wordpiece_tokenizer_json_of_transformers_keeps_its_settings():
    tokenizer = read_hf_tokenizer(SAVED_BY_TRANSFORMERS / "wordpiece")
    assert isinstance(tokenizer, WordPieceTokenizer)
    assert tokenizer.settings == TokenizerSettings(lower_case=False, strip_accents=True)
    assert tokenizer.pieces([0, 1, 2, 3, 4]) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.pieces(tokenizer.encode("th\u00e9, T")) == ["the", ",", "[UNK]"]


@pytest.mark.parametrize(
    ("kind", "config", "lower_case", "strip_accents"),
    [
        ("sentencepiece", {}, True, True),
        ("sentencepiece", {"do_lower_case": False}, False, True),
        ("sentencepiece", {"keep_accents": True}, True, False),
        ("wordpiece", {}, True, True),
        ("wordpiece", {"do_lower_case": False}, False, False),
        ("wordpiece", {"do_lower_case": True, "strip_accents": False}, True, False),
        ("wordpiece", {"do_lower_case": True, "strip_accents": None}, True, True),
    ],
)
def test_settings_are_those_of_the_configuration(kind, config, lower_case, strip_accents, tmp_path):
    name = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}[kind]
    shutil.copyfile(SOURCES[kind], tmp_path / name)
    write_config(tmp_path, **config)
    for path in (tmp_path, tmp_path / name):
        tokenizer = load_tokenizer(path)
        assert tokenizer.settings == TokenizerSettings(lower_case=lower_case, strip_accents=strip_accents)
    with pytest.raises(UserError, match="the flag asks for"):
        load_tokenizer(tmp_path, lower_case=not lower_case)


def test_a_tokenizer_json_without_normalisation_keeps_case_and_accents(tmp_path):
    described = json.loads((SAVED_BY_TRANSFORMERS / "sentencepiece" / "tokenizer.json").read_text(encoding="utf-8"))
    described["normalizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    assert read_hf_tokenizer(tmp_path).settings == TokenizerSettings(lower_case=False, strip_accents=False)


def change(described, kind):
    if kind == "extended":
        described["added_tokens"].append({"id": 10**6, "content": "[DATE]", "special": True})
        return "extended by 1 tokens, such as '\\[DATE\\]'"
    if kind == "bpe":
        described["model"]["type"] = "BPE"
        return "this one is BPE"
    if kind == "holes":
        described["model"]["vocab"]["new"] = 10**6
        return "ids of the vocabulary must be 0, 1, 2"
    if kind == "chinese":
        described["normalizer"]["handle_chinese_chars"] = False
        return "does not separate Chinese characters"
    del described["model"]["vocab"]
    return "not laid out as tokenizers writes it"


@pytest.mark.parametrize("kind", ["extended", "bpe", "holes", "chinese", "layout"])
def test_what_is_no_albert_tokenizer_is_refused(kind, tmp_path):
    described = json.loads((SAVED_BY_TRANSFORMERS / "wordpiece" / "tokenizer.json").read_text(encoding="utf-8"))
    message = change(described, kind)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_hf_tokenizer(tmp_path)


def test_a_configuration_without_a_vocabulary_is_refused(tmp_path):
    write_config(tmp_path, do_lower_case=True)
    with pytest.raises(UserError, match="neither spiece.model nor vocab.txt nor tokenizer.json"):
        read_hf_tokenizer(tmp_path)


@KINDS
@pytest.mark.parametrize("strip_accents", [True, False])
@SETTINGS
def test_autotokenizer_gives_our_ids(kind, lower_case, strip_accents, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer = load_tokenizer(SOURCES[kind], lower_case=lower_case, strip_accents=strip_accents)
    write_hf_tokenizer(tokenizer, tmp_path, max_seq_length=128)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}', encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    different = {
        text for text in TEXTS if theirs(text, add_special_tokens=False)["input_ids"] != tokenizer.encode(text)
    }
    # Literal special pieces are special there.
    assert different == {"[MASK]", "[CLS] hello [SEP]", "[CLS]", "[SEP]"} | (
        {"[UNK]"} if kind == "wordpiece" else set()
    )
    assert theirs.model_max_length == 128
    assert theirs.mask_token_id == tokenizer.mask_id
    assert theirs.pad_token_id == tokenizer.pad_id
    pair = theirs("one", "two")
    first, second = tokenizer.encode_batch(["one", "two"])
    assert pair["input_ids"] == [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.decode(tokenizer.encode("hello world")) == "hello world"
