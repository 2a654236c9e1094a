"""The tokenizer of the Chinese models: BERT's word splitting and WordPiece (TF1 tokenization.py, FullTokenizer)."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

from albert_tf.errors import UserError
from albert_tf.tokenizer_base import Tokenizer, TokenizerSettings

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200  # a longer word is unknown

# The blocks of CJK ideographs that TF1 tokenization.py lists: each character is a word of its own.
IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+")
_PLACEHOLDER = re.compile(r"\[unused\d+\]")

_CACHED_WORDS = 2**17  # about 30 MB
_CACHED_WORD_CHARACTERS = 64


class WordPieceTokenizer(Tokenizer):
    """Text to ids and back with a BERT vocabulary: one piece a line, `##` where a piece continues a word."""

    kind = "wordpiece"
    file_name = "vocab.txt"
    special_pieces = (PAD, UNK, CLS, SEP, MASK)

    def __init__(self, model: bytes, settings: TokenizerSettings | None = None) -> None:
        vocabulary = _read_vocabulary(model)
        super().__init__(model, settings or TokenizerSettings(), vocabulary=vocabulary)
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._longest_piece = max(map(len, vocabulary))
        self._word_ids = _WordIds(self)

    def normalize(self, text: str) -> str:
        """Returns the words that are cut into pieces, joined by spaces; punctuation marks are words."""
        return " ".join(word for chunk in _chunks(text) for word in self.split_chunk(chunk))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special ids; a word that the vocabulary cannot spell gives `unk_id`."""
        return list(itertools.chain.from_iterable(map(self._word_ids.__getitem__, _chunks(text))))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special ids, on the calling thread."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of ids, joined by spaces; special pieces but the unknown one are left out."""
        left_out = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return " ".join(self.pieces([i for i in ids if i not in left_out])).replace(f" {CONTINUATION}", "")

    def split_chunk(self, chunk: str) -> list[str]:
        """Returns the words of a run of text without spaces: normalised, each punctuation mark by itself."""
        if self.settings.lower_case:
            chunk = chunk.lower()
        if self.settings.strip_accents and not chunk.isascii():
            chunk = "".join([c for c in unicodedata.normalize("NFD", chunk) if unicodedata.category(c) != "Mn"])
        return _punctuation_or_run().findall(chunk)

    def word_ids(self, word: str) -> list[int]:
        """Returns the ids of a word: the longest piece at each place, or `unk_id` alone where there is none."""
        if len(word) > MAX_WORD_CHARACTERS:
            return [self.unk_id]
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = CONTINUATION if start else ""
            longest = min(len(word), start + self._longest_piece)
            for end in range(longest, start, -1):
                piece_id = self._ids.get(prefix + word[start:end])
                if piece_id is not None:
                    break
            else:
                return [self.unk_id]
            ids.append(piece_id)
            start = end
        return ids

    @staticmethod
    def _original_strips_accents(lower_case: bool) -> bool:
        return lower_case

    def _is_special(self, piece_id: int) -> bool:
        piece = self.vocabulary[piece_id]
        return piece in self.special_pieces or _PLACEHOLDER.fullmatch(piece) is not None

    @staticmethod
    def _starts_word(piece: str) -> bool:
        return not piece.startswith(CONTINUATION)


class _WordIds(dict[str, tuple[int, ...]]):
    """The ids of runs of text between spaces; computes what it lacks, and starts anew when it is full."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        tokenizer = self._tokenizer
        ids = tuple(i for word in tokenizer.split_chunk(chunk) for i in tokenizer.word_ids(word))
        if len(chunk) <= _CACHED_WORD_CHARACTERS:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[chunk] = ids
        return ids


def _chunks(text: str) -> list[str]:
    """Returns the runs of text between spaces, each ideograph by itself, without control and format characters."""
    if not text.isprintable() or "\ufffd" in text:
        text = _dropped_characters().sub("", text)
    return _WORD.findall(text)


def is_dropped(character: str) -> bool:
    """Whether the original leaves a character out: U+FFFD, control and format characters but for tab and line ends.

    A lone surrogate, which no UTF-8 text has, counts as U+FFFD.
    """
    return character == "\ufffd" or (
        unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\t\n\r"
    )


def is_punctuation(character: str) -> bool:
    """Whether the original makes a character a word of its own: Unicode's punctuation, and ASCII's symbols."""
    return unicodedata.category(character).startswith("P") or character in "$+<=>^`|~"


@functools.cache
def _dropped_characters() -> re.Pattern[str]:
    dropped = map(re.escape, filter(is_dropped, map(chr, range(sys.maxunicode + 1))))
    return re.compile(f"[{''.join(dropped)}]+")


@functools.cache
def _punctuation_or_run() -> re.Pattern[str]:
    marks = "".join(map(re.escape, filter(is_punctuation, map(chr, range(sys.maxunicode + 1)))))
    return re.compile(rf"[{marks}]|[^\s{marks}]+")


def _read_vocabulary(model: bytes) -> list[str]:
    try:
        text = model.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not a WordPiece vocabulary, which is UTF-8 text with one piece a line") from None
    vocabulary = text.removesuffix("\n").replace("\r\n", "\n").removesuffix("\r").split("\n")
    if len(set(vocabulary)) < len(vocabulary):
        repeated = next(piece for i, piece in enumerate(vocabulary) if piece in vocabulary[:i])
        raise UserError(f"a WordPiece vocabulary has each piece once; received {repeated!r} twice")
    return vocabulary
