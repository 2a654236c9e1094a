"""What every kind of tokenizer has: settings, special ids, fingerprint, save and load."""

import abc
import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import read_json, whole_file, write_json
from albert_tf.text.normalization import Span

SETTINGS_FILE = "tokenizer_settings.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text is normalised before it is cut into pieces.

    `strip_accents` None is the original's rule: always with SentencePiece, together with `lower_case` with WordPiece.
    """

    lower_case: bool = True
    strip_accents: bool | None = None


class Tokenizer(abc.ABC):
    """Text to ids and back, without special ids: those are never produced from text, whatever the text says."""

    kind: ClassVar[str]
    file_name: ClassVar[str]  # of the model in a saved directory
    special_pieces: ClassVar[Sequence[str]]  # padding, unknown, [CLS], [SEP], [MASK]

    def __init__(self, model: bytes, settings: TokenizerSettings, *, vocabulary: list[str]) -> None:
        if settings.strip_accents is None:
            settings = dataclasses.replace(settings, strip_accents=self._original_strips_accents(settings.lower_case))
        self.model = model
        self.settings = settings
        self.vocabulary = vocabulary  # the pieces by id
        self.vocab_size = len(vocabulary)
        ids = {piece: i for i, piece in enumerate(vocabulary)}
        for piece in self.special_pieces:
            if piece not in ids:
                raise UserError(
                    f"not an ALBERT vocabulary: it has no piece {piece!r}. Train one with data_prep/train_vocab.py"
                )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[p] for p in self.special_pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.settings)

    @classmethod
    def load(cls, path: str | Path, *, lower_case: bool | None = None, strip_accents: bool | None = None) -> Self:
        """Loads a model file, or the directory that `save` wrote.

        Settings come from the `tokenizer_settings.json` beside the model. `lower_case` and `strip_accents` are for
        models without one; where both are given they must agree.
        """
        file = Path(path) / cls.file_name if Path(path).is_dir() else Path(path)
        try:
            model = file.read_bytes()
        except OSError as error:
            raise UserError(f"{cls.kind} model {str(file)!r} cannot be read: {error.strerror}") from None
        settings = TokenizerSettings(lower_case=lower_case is not False, strip_accents=strip_accents)
        settings_file = file.with_name(SETTINGS_FILE)
        if settings_file.exists():
            kind, settings = read_settings(settings_file)
            if kind != cls.kind:
                raise UserError(f"{settings_file} says that {file.name} is a {kind} model, not a {cls.kind} one")
            require_settings(settings, source=settings_file, lower_case=lower_case, strip_accents=strip_accents)
        try:
            return cls(model, settings)  # type: ignore[call-arg]  # the kinds find their vocabulary in the model
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    def save(self, directory: Path) -> None:
        """Writes the model and its settings into `directory`."""
        with whole_file(directory / self.file_name) as temporary:
            temporary.write_bytes(self.model)
        write_json(directory / SETTINGS_FILE, self._recorded_settings())

    def _recorded_settings(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self.settings)}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model and its settings: equal fingerprints give equal ids."""
        settings = json.dumps(self._recorded_settings(), sort_keys=True)
        return hashlib.sha256(self.model + settings.encode()).hexdigest()

    @functools.cached_property
    def special_ids(self) -> np.ndarray:
        """Sorted ids of the pieces that never stand for text, the unknown piece among them."""
        return np.array([i for i in range(self.vocab_size) if self._is_special(i)])

    @functools.cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Sorted ids of the pieces that stand for text: all but `special_ids`."""
        return np.setdiff1d(np.arange(self.vocab_size), self.special_ids)

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """Bool [vocab_size]: whether a piece begins a word, by the rule of TF1 create_pretraining_data.py."""
        return np.array([self._starts_word(piece) for piece in self.vocabulary])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self.vocabulary[i] for i in ids]

    @abc.abstractmethod
    def normalize(self, text: str) -> str:
        """Returns the text that is cut into pieces."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special ids; what the vocabulary cannot spell gives `unk_id`."""

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Returns ids, and the span [start, end) of `text`, in characters, that each piece stands for.

        Spans do not decrease, and hold every character that normalisation keeps but spaces; a dropped accent belongs
        to the letter before it. Where a character becomes several pieces, its span is that of each.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special ids, on the calling thread."""
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a list of strings; received one {type(texts).__name__}")
        return self._encode_batch(texts)

    @abc.abstractmethod
    def _encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the normalised text of ids; special pieces but the unknown one are left out."""

    @staticmethod
    @abc.abstractmethod
    def _original_strips_accents(lower_case: bool) -> bool:
        """Returns the original's setting beside `lower_case`."""

    @abc.abstractmethod
    def _is_special(self, piece_id: int) -> bool: ...

    @staticmethod
    @abc.abstractmethod
    def _starts_word(piece: str) -> bool: ...


def require_settings(
    settings: TokenizerSettings, *, source: Path, lower_case: bool | None, strip_accents: bool | None
) -> None:
    """Raises UserError where the settings of `source` are not those given; None agrees with any."""
    for name, value in {"lower_case": lower_case, "strip_accents": strip_accents}.items():
        if value not in (None, getattr(settings, name)):
            raise UserError(
                f"{source} says {name}={getattr(settings, name)}, and the flag asks for {value}; "
                "a vocabulary is used as it was trained: drop the flag, or train another vocabulary"
            )


def read_settings(path: Path) -> tuple[str, TokenizerSettings]:
    """Returns the kind of tokenizer and its settings that a `tokenizer_settings.json` records."""
    values = read_json(path, what="tokenizer settings")
    names = {field.name for field in dataclasses.fields(TokenizerSettings)}
    if (
        not isinstance(values, dict)
        or set(values) != {"kind", *names}
        or not all(isinstance(values[name], bool) for name in names)
    ):
        raise UserError(
            f'{path} must hold {{"kind": "sentencepiece" or "wordpiece", "lower_case": true or false, '
            f'"strip_accents": true or false}}; received {values!r}'
        )
    return values.pop("kind"), TokenizerSettings(**values)
