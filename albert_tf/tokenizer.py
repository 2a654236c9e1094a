"""The one tokenizer: normalisation, SentencePiece pieces and ids, special ids, save and load."""

import dataclasses
import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import UserError
from albert_tf.files import read_json, whole_file, write_json

MODEL_FILE = "spiece.model"
SETTINGS_FILE = "tokenizer_settings.json"

PAD, UNK, CLS, SEP, MASK = "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"
WORD_BOUNDARY = "\u2581"

# A piece of these characters alone is punctuation, and a piece of these and a-z alone may continue a word
# (TF1 create_pretraining_data.py, _is_start_piece_sp). The apostrophe is absent there, so "'s" begins a word.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~\u20ac\u00a3')
_ENGLISH = frozenset("abcdefghijklmnopqrstuvwxyz")

# The original re-encodes "digits," pieces without their comma. Making such pieces unattractive has the same effect.
_DIGIT_COMMA = re.compile(r".*\d,", re.DOTALL)
_DIGIT_COMMA_PENALTY = 100.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text is normalised before SentencePiece sees it."""

    lower_case: bool = True


def normalize(text: str, *, lower_case: bool) -> str:
    """Normalises text as TF1 tokenization.preprocess_text: spaces, NFKD, no combining characters, lower case."""
    text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = "".join([character for character in text if not unicodedata.combining(character)])
    return text.lower() if lower_case else text


class SentencePieceTokenizer:
    """Text to ids and back with a SentencePiece model that has ALBERT's special pieces.

    Control pieces ([CLS], [SEP], [MASK], <pad>) are never produced from text, whatever the text says.
    """

    def __init__(self, model: bytes, settings: TokenizerSettings | None = None) -> None:
        self.settings = settings or TokenizerSettings()
        self.model = _with_digit_comma_rule(model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self.vocab_size = self._processor.get_piece_size()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._special_id(piece) for piece in (PAD, UNK, CLS, SEP, MASK)
        )

    @classmethod
    def load(cls, path: str | Path, *, lower_case: bool | None = None) -> "SentencePieceTokenizer":
        """Loads a model file, or the directory that `save` wrote.

        Settings come from the `tokenizer_settings.json` beside the model. `lower_case` is for models without one;
        where both are given they must agree.
        """
        model_file = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
        try:
            model = model_file.read_bytes()
        except OSError as error:
            raise UserError(f"SentencePiece model {str(model_file)!r} cannot be read: {error.strerror}") from None
        settings = TokenizerSettings(lower_case=True if lower_case is None else lower_case)
        settings_file = model_file.with_name(SETTINGS_FILE)
        if settings_file.exists():
            settings = _read_settings(settings_file)
            if lower_case is not None and lower_case != settings.lower_case:
                raise UserError(
                    f"{settings_file} says lower_case={settings.lower_case}, and the flag asks for {lower_case}; "
                    "a vocabulary is used as it was trained: drop the flag, or train another vocabulary"
                )
        try:
            return cls(model, settings)
        except UserError as error:
            raise UserError(f"{model_file}: {error}") from None

    def save(self, directory: Path) -> None:
        """Writes the model and its settings into `directory`."""
        with whole_file(directory / MODEL_FILE) as temporary:
            temporary.write_bytes(self.model)
        write_json(directory / SETTINGS_FILE, dataclasses.asdict(self.settings))

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model and its settings: equal fingerprints give equal ids."""
        settings = json.dumps(dataclasses.asdict(self.settings), sort_keys=True)
        return hashlib.sha256(self.model + settings.encode()).hexdigest()

    @functools.cached_property
    def special_ids(self) -> np.ndarray:
        """Sorted ids of the control and unknown pieces, which never stand for text."""
        processor = self._processor
        return np.array([i for i in range(self.vocab_size) if processor.is_control(i) or processor.is_unknown(i)])

    @functools.cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Sorted ids of the pieces that stand for text: all but `special_ids`."""
        return np.setdiff1d(np.arange(self.vocab_size), self.special_ids)

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """Bool [vocab_size]: whether a piece begins a word, by the rule of TF1 create_pretraining_data.py."""
        return np.array([_starts_word(self._processor.id_to_piece(i)) for i in range(self.vocab_size)])

    def normalize(self, text: str) -> str:
        """Returns the text that SentencePiece is given."""
        return normalize(text, lower_case=self.settings.lower_case)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special ids."""
        return self._processor.encode(self.normalize(text), out_type=int)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special ids, on the calling thread."""
        normalized = [self.normalize(text) for text in texts]
        return self._processor.encode(normalized, out_type=int, num_threads=1)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the normalised text of ids; control pieces are left out."""
        return self._processor.decode([int(i) for i in ids])

    def _special_id(self, piece: str) -> int:
        piece_id = self._processor.piece_to_id(piece)
        # piece_to_id answers <unk>'s id for a piece that the model does not have.
        if self._processor.id_to_piece(piece_id) != piece:
            raise UserError(
                f"not an ALBERT vocabulary: it has no piece {piece!r}. Train one with data_prep/train_vocab.py"
            )
        return piece_id


def _starts_word(piece: str) -> bool:
    if piece.startswith((WORD_BOUNDARY, "<")) or piece in _PUNCTUATION:
        return True
    return not all(character.lower() in _ENGLISH or character in _PUNCTUATION for character in piece)


def _read_settings(path: Path) -> TokenizerSettings:
    values = read_json(path, what="tokenizer settings")
    names = {field.name for field in dataclasses.fields(TokenizerSettings)}
    if not isinstance(values, dict) or set(values) != names or not isinstance(values["lower_case"], bool):
        raise UserError(f'{path} must hold {{"lower_case": true}} or false; received {values!r}')
    return TokenizerSettings(**values)


def _with_digit_comma_rule(model: bytes) -> bytes:
    """Lowers the scores of pieces such as "2," by 100 (once: a model that has it already is returned unchanged)."""
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception:  # protobuf's DecodeError moved between versions
        proto.Clear()
    if not proto.pieces:
        raise UserError("not a SentencePiece model (pass the .model file; a .vocab listing cannot be used)")
    affected = [piece for piece in proto.pieces if len(piece.piece) > 1 and _DIGIT_COMMA.fullmatch(piece.piece)]
    lowest_other = min(piece.score for piece in proto.pieces if not _DIGIT_COMMA.fullmatch(piece.piece))
    for piece in affected:
        if piece.score > lowest_other - _DIGIT_COMMA_PENALTY / 2:
            piece.score -= _DIGIT_COMMA_PENALTY
    return proto.SerializeToString(deterministic=True)
