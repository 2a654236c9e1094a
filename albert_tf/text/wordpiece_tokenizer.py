"""The tokenizer of the Chinese models: BERT's word splitting and WordPiece (TF1 tokenization.py, FullTokenizer)."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

from albert_tf.errors import UserError
from albert_tf.text.normalization import AlignedText, Span, Step, character_class, drop, is_nonspacing_mark
from albert_tf.text.tokenizer import Tokenizer, TokenizerSettings

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200  # a longer word is unknown

# The blocks of CJK ideographs that TF1 tokenization.py lists: each character is a word of its own.
IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_CHUNK = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+")
_PLACEHOLDER = re.compile(r"\[unused\d+\]")

_REMEMBERED_STRINGS = 2**16  # about 15 MB
_REMEMBERED_CHARACTERS = 40


class WordPieceTokenizer(Tokenizer):
    """Text to ids and back with a BERT vocabulary: one piece a line, `##` where a piece continues a word."""

    kind = "wordpiece"
    file_name = "vocab.txt"
    special_pieces = (PAD, UNK, CLS, SEP, MASK)

    def __init__(self, model: bytes, settings: TokenizerSettings | None = None) -> None:
        vocabulary = _read_vocabulary(model)
        super().__init__(model, settings or TokenizerSettings(), vocabulary=vocabulary)
        self._steps = _steps(self.settings.lower_case, bool(self.settings.strip_accents))
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._longest_piece = max(map(len, vocabulary))
        self._ids_of_word = _Remembered(self._spell)
        self._ids_of_chunk = _Remembered(self._encode_chunk)

    def normalize(self, text: str) -> str:
        """Returns the words that are cut into pieces, joined by spaces; ideographs and punctuation marks are words."""
        for step in self._steps:
            text = step(text)
        return " ".join(_word().findall(text))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special ids; a word that the vocabulary cannot spell gives `unk_id`."""
        return list(itertools.chain.from_iterable(map(self._ids_of_chunk.__getitem__, _chunks(text))))

    def _encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Returns ids, and the span [start, end) of `text` that each piece stands for; an unknown piece is a word."""
        aligned = AlignedText.of(text)
        for step in self._steps:
            aligned = aligned.apply(step)
        ids: list[int] = []
        spans: list[Span] = []
        for word in _word().finditer(aligned.text):
            ids_of_word = self._ids_of_word[word[0]]
            ids += ids_of_word
            if ids_of_word == (self.unk_id,):
                spans.append(aligned.span(*word.span()))
                continue
            start = word.start()
            for piece in self.pieces(ids_of_word):
                end = start + len(piece if start == word.start() else piece.removeprefix(CONTINUATION))
                spans.append(aligned.span(start, end))
                start = end
        return ids, spans

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of ids, joined by spaces; special pieces but the unknown one are left out."""
        left_out = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return " ".join(self.pieces([i for i in ids if i not in left_out])).replace(f" {CONTINUATION}", "")

    def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
        """Returns the ids of a run of text between spaces, of which nothing is to be dropped."""
        for step in self._steps[1:]:
            chunk = step(chunk)
        words = _word().findall(chunk)
        return tuple(itertools.chain.from_iterable(map(self._ids_of_word.__getitem__, words)))

    def _spell(self, word: str) -> tuple[int, ...]:
        """Returns the ids of a word: the longest piece at each place, or `unk_id` alone where there is none."""
        if len(word) > MAX_WORD_CHARACTERS:
            return (self.unk_id,)
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
                return (self.unk_id,)
            ids.append(piece_id)
            start = end
        return tuple(ids)

    @staticmethod
    def _original_strips_accents(lower_case: bool) -> bool:
        return lower_case

    def _is_special(self, piece_id: int) -> bool:
        piece = self.vocabulary[piece_id]
        return piece in self.special_pieces or _PLACEHOLDER.fullmatch(piece) is not None

    @staticmethod
    def _starts_word(piece: str) -> bool:
        return not piece.startswith(CONTINUATION)


class _Remembered(dict[str, tuple[int, ...]]):
    """What `compute` returns for short strings; starts anew when it is full."""

    def __init__(self, compute: Callable[[str], tuple[int, ...]]) -> None:
        self._compute = compute

    def __missing__(self, key: str) -> tuple[int, ...]:
        value = self._compute(key)
        if len(key) <= _REMEMBERED_CHARACTERS:
            if len(self) >= _REMEMBERED_STRINGS:
                self.clear()
            self[key] = value
        return value


def _steps(lower_case: bool, strip_accents: bool) -> tuple[Step, ...]:
    """Returns what the original does to the characters of text; the first step alone crosses no space or ideograph."""
    steps: list[Step] = [_drop]
    if lower_case:
        steps.append(str.lower)
    if strip_accents:
        steps.append(_strip_accents)
    return tuple(steps)


def _chunks(text: str) -> list[str]:
    """Returns the runs of text between spaces, each ideograph by itself, less the characters to be dropped."""
    text = _drop(text)
    return text.split() if text.isascii() else _CHUNK.findall(text)


def _drop(text: str) -> str:
    if text.isprintable() and "\ufffd" not in text:
        return text
    return drop(is_dropped)(text)


def _strip_accents(text: str) -> str:
    return text if text.isascii() else drop(is_nonspacing_mark)(unicodedata.normalize("NFD", text))


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
def _word() -> re.Pattern[str]:
    """Returns the expression that finds words: an ideograph, a punctuation mark, or a run of other characters."""
    marks = character_class(is_punctuation)
    return re.compile(rf"[{IDEOGRAPHS}{marks}]|[^\s{IDEOGRAPHS}{marks}]+")


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
