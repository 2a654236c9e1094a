"""Hugging Face tokenizer directories: reading them, and writing one that AutoTokenizer loads and that gives our ids.

What differs in a directory written here: text that spells a special piece, such as "[MASK]", becomes that piece; 15
characters that Unicode 13 and 14 gave a compatibility decomposition keep their form; and where two cuts of a word are
equally likely, the other one may be taken.
"""

import base64
import json
import unicodedata
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import UserError
from albert_tf.files import read_json, whole_file, write_json
from albert_tf.text import wordpiece_tokenizer
from albert_tf.text.normalization import hex_character_class, is_combining, is_nonspacing_mark
from albert_tf.text.sentencepiece_tokenizer import WORD_BOUNDARY, SentencePieceTokenizer
from albert_tf.text.tokenizer import Tokenizer, TokenizerSettings
from albert_tf.text.wordpiece_tokenizer import CONTINUATION, IDEOGRAPHS, MAX_WORD_CHARACTERS, WordPieceTokenizer

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

_SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_PieceType = sentencepiece_model_pb2.ModelProto.SentencePiece

_Json = dict[str, Any]


def is_hf_tokenizer(directory: Path) -> bool:
    """Whether a directory has a file by which transformers knows a tokenizer."""
    return (directory / TOKENIZER_FILE).exists() or (directory / CONFIG_FILE).exists()


def read_hf_tokenizer(directory: Path) -> Tokenizer:
    """Returns the tokenizer of a Hugging Face directory: spiece.model or vocab.txt, or tokenizer.json alone.

    Case and accents are those of tokenizer_config.json, else of tokenizer.json, else the original's.
    """
    config = read_json(directory / CONFIG_FILE, what="tokenizer configuration") if _has(directory, CONFIG_FILE) else {}
    described = read_json(directory / TOKENIZER_FILE, what="tokenizer") if _has(directory, TOKENIZER_FILE) else {}
    try:
        settings = _read_settings(config, described)
        for kind in (SentencePieceTokenizer, WordPieceTokenizer):
            if _has(directory, kind.file_name):
                return kind((directory / kind.file_name).read_bytes(), settings)
        return _of_tokenizer_json(described, settings)
    except UserError as error:
        raise UserError(f"{directory}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{directory / TOKENIZER_FILE} is not laid out as tokenizers writes it: {error!r}") from None


def write_hf_tokenizer(tokenizer: Tokenizer, directory: Path, *, max_seq_length: int) -> None:
    """Writes the files by which `transformers.AutoTokenizer` loads `tokenizer`; texts are cut to `max_seq_length`."""
    described = _describe(tokenizer)
    with whole_file(directory / tokenizer.file_name) as temporary:
        temporary.write_bytes(tokenizer.model)
    with whole_file(directory / TOKENIZER_FILE) as temporary:
        temporary.write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")
    special = dict(zip(_SPECIAL_NAMES, tokenizer.special_pieces, strict=True))
    settings = tokenizer.settings
    config = {
        # The class that takes tokenizer.json as it is; AlbertTokenizer and BertTokenizer build their own rules.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": settings.lower_case,
        "strip_accents": settings.strip_accents,
        "keep_accents": not settings.strip_accents,
        "model_max_length": max_seq_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(directory / CONFIG_FILE, config)
    write_json(directory / SPECIAL_TOKENS_FILE, special)


def _has(directory: Path, name: str) -> bool:
    return (directory / name).is_file()


def _read_settings(config: _Json, described: _Json) -> TokenizerSettings:
    steps = _flatten(described.get("normalizer"))
    types = {step["type"] for step in steps}
    bert = next((step for step in steps if step["type"] == "BertNormalizer"), None)
    if not config.get("tokenize_chinese_chars", True) or (bert and not bert["handle_chinese_chars"]):
        raise UserError("a tokenizer that does not separate Chinese characters cannot be represented")
    lower_case = config.get("do_lower_case")
    strip_accents = config.get("strip_accents")
    if strip_accents is None and "keep_accents" in config:
        strip_accents = not config["keep_accents"]
    if lower_case is None:
        lower_case = bool(bert["lowercase"]) if bert else "Lowercase" in types or not described
    if strip_accents is None and bert:
        strip_accents = bert["strip_accents"]
    elif strip_accents is None and described:
        strip_accents = bool(types & {"NFKD", "NFD", "StripAccents"})
    return TokenizerSettings(lower_case=lower_case, strip_accents=strip_accents)


def _flatten(step: _Json | None) -> list[_Json]:
    if step is None:
        return []
    return [s for part in step["normalizers"] for s in _flatten(part)] if step["type"] == "Sequence" else [step]


def _of_tokenizer_json(described: _Json, settings: TokenizerSettings) -> Tokenizer:
    if not described:
        raise UserError("there is neither spiece.model nor vocab.txt nor tokenizer.json")
    model = described["model"]
    size = len(model["vocab"])
    added = [token["content"] for token in described.get("added_tokens", ()) if token["id"] >= size]
    if added:
        raise UserError(f"the vocabulary was extended by {len(added)} tokens, such as {added[0]!r}; that is not ALBERT")
    # Files from before the model had a type are told apart by what it holds.
    kind = model.get("type") or ("WordPiece" if "continuing_subword_prefix" in model else "Unigram")
    if kind == "Unigram":
        return SentencePieceTokenizer(_sentencepiece_model(described), settings)
    if kind != "WordPiece" or model["continuing_subword_prefix"] != CONTINUATION:
        raise UserError(f"ALBERT's tokenizers are Unigram (SentencePiece) and WordPiece; this one is {kind}")
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if sorted(model["vocab"].values()) != list(range(size)):
        raise UserError("the ids of the vocabulary must be 0, 1, 2, ...")
    return WordPieceTokenizer("".join(f"{piece}\n" for piece in pieces).encode(), settings)


def _sentencepiece_model(described: _Json) -> bytes:
    """Returns the SentencePiece model that a Unigram tokenizer.json was made from."""
    vocab = described["model"]["vocab"]
    special = {token["content"] for token in described.get("added_tokens", ()) if token["special"]}
    proto = sentencepiece_model_pb2.ModelProto()
    for i, (piece, score) in enumerate(vocab):
        if i == described["model"]["unk_id"]:
            piece_type = _PieceType.UNKNOWN
        elif piece in special:
            piece_type = _PieceType.CONTROL
        else:  # a symbol that the user defined has no probability
            piece_type = _PieceType.USER_DEFINED if score == 0 else _PieceType.NORMAL
        proto.pieces.add(piece=piece, score=score, type=piece_type)
    proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    proto.trainer_spec.vocab_size = len(vocab)
    proto.trainer_spec.unk_id = described["model"]["unk_id"]
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = -1
    proto.trainer_spec.pad_id = 0
    for step in _flatten(described.get("normalizer")):
        if step["type"] == "Precompiled":
            proto.normalizer_spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    return proto.SerializeToString(deterministic=True)


def _describe(tokenizer: Tokenizer) -> _Json:
    """Returns the content of tokenizer.json."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        parts = _describe_sentencepiece(tokenizer)
    else:
        parts = _describe_wordpiece(tokenizer)
    special_ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": tokenizer.vocabulary[i], **flags} for i in sorted(special_ids)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **parts,
        "post_processor": _describe_packing(tokenizer),
    }


def _describe_packing(tokenizer: Tokenizer) -> _Json:
    cls, sep = (tokenizer.vocabulary[i] for i in (tokenizer.cls_id, tokenizer.sep_id))

    def token(name: str, segment: int) -> _Json:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    first = [token(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}, token(sep, 0)]
    special = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, {"Sequence": {"id": "B", "type_id": 1}}, token(sep, 1)],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in special.items()},
    }


def _describe_sentencepiece(tokenizer: SentencePieceTokenizer) -> _Json:
    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)
    spec = proto.normalizer_spec
    if proto.trainer_spec.model_type != sentencepiece_model_pb2.TrainerSpec.UNIGRAM:
        raise UserError("only unigram models of SentencePiece can be written as tokenizer.json")
    if not (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces):
        raise UserError("only SentencePiece models that add a space in front and merge spaces can be tokenizer.json")
    steps = [_replace(hex_character_class(str.isspace) + "+", " ")]
    if tokenizer.settings.strip_accents:
        steps += [{"type": "NFKD"}, _replace(hex_character_class(is_combining) + "+", "")]
    if tokenizer.settings.lower_case:
        steps.append({"type": "Lowercase"})
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    steps += [_replace(" +", " "), {"type": "Strip", "strip_left": True, "strip_right": True}]
    boundary = {"type": "Metaspace", "replacement": WORD_BOUNDARY, "prepend_scheme": "always", "split": True}
    vocab = [[piece.piece, piece.score] for piece in proto.pieces]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": boundary,
        "decoder": boundary,
        "model": {"type": "Unigram", "unk_id": tokenizer.unk_id, "vocab": vocab, "byte_fallback": False},
    }


def _describe_wordpiece(tokenizer: Tokenizer) -> _Json:
    # A lone surrogate cannot stand in a file.
    dropped = hex_character_class(lambda c: wordpiece_tokenizer.is_dropped(c) and unicodedata.category(c) != "Cs")
    steps = [_replace(dropped + "+", "")]
    if tokenizer.settings.lower_case:
        steps.append({"type": "Lowercase"})
    if tokenizer.settings.strip_accents:
        steps += [{"type": "NFD"}, _replace(hex_character_class(is_nonspacing_mark) + "+", "")]
    words = hex_character_class(wordpiece_tokenizer.is_punctuation)
    splits = [(f"[{IDEOGRAPHS}]|{words}", "Isolated"), (hex_character_class(str.isspace) + "+", "Removed")]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}
                for pattern, behavior in splits
            ],
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.vocabulary[tokenizer.unk_id],
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": MAX_WORD_CHARACTERS,
            "vocab": {piece: i for i, piece in enumerate(tokenizer.vocabulary)},
        },
    }


def _replace(pattern: str, content: str) -> _Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
