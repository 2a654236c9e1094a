"""The tokenizer of the English models: SentencePiece with ALBERT's special pieces (TF1 tokenization.py)."""

import functools
import re
import unicodedata
from collections.abc import Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import UserError
from albert_tf.text.normalization import AlignedText, Span, Step, drop, is_combining
from albert_tf.text.tokenizer import Tokenizer, TokenizerSettings

MODEL_FILE = "spiece.model"

PAD, UNK, CLS, SEP, MASK = "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"
WORD_BOUNDARY = "\u2581"

# A piece of these characters alone is punctuation, and a piece of these and a-z alone may continue a word
# (TF1 create_pretraining_data.py, _is_start_piece_sp). The apostrophe is absent there, so "'s" begins a word.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~\u20ac\u00a3')
_ENGLISH = frozenset("abcdefghijklmnopqrstuvwxyz")

# The original re-encodes "digits," pieces without their comma. Making such pieces unattractive has the same effect.
_DIGIT_COMMA = re.compile(r".*\d,", re.DOTALL)
_DIGIT_COMMA_PENALTY = 100.0

# Scores are multiples of this, so that sums down to -32,768 (about 4,000 pieces) are exact in float32. Versions of
# SentencePiece round sums differently, and the exported graph would cut 0.02 % of all lines in another way.
_SCORE_STEP = 2.0**-9

_SURROGATES = re.compile("[\ud800-\udfff]")


@functools.cache
def _steps(lower_case: bool, strip_accents: bool) -> tuple[Step, ...]:
    """Returns what TF1 tokenization.preprocess_text does after spaces: NFKD, no combining characters, lower case.

    A lone surrogate, which no UTF-8 text has, becomes U+FFFD. Without `strip_accents` NFKD is left out as well:
    SentencePiece composes to NFKC by itself.
    """
    steps: list[Step] = [functools.partial(_SURROGATES.sub, "\ufffd")]
    if strip_accents:
        steps += [functools.partial(unicodedata.normalize, "NFKD"), drop(is_combining)]
    return (*steps, str.lower) if lower_case else tuple(steps)


def normalize(text: str, *, lower_case: bool, strip_accents: bool) -> str:
    """Normalises text as TF1 tokenization.preprocess_text does it."""
    text = " ".join(text.split())
    if text.isascii():
        return text.lower() if lower_case else text
    for step in _steps(lower_case, strip_accents):
        text = step(text)
    return text


class SentencePieceTokenizer(Tokenizer):
    """Text to ids and back with a SentencePiece model that has ALBERT's special pieces."""

    kind = "sentencepiece"
    file_name = MODEL_FILE
    special_pieces = (PAD, UNK, CLS, SEP, MASK)

    def __init__(self, model: bytes, settings: TokenizerSettings | None = None) -> None:
        model = _with_own_scores(model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        vocabulary = [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]
        super().__init__(model, settings or TokenizerSettings(), vocabulary=vocabulary)

    def normalize(self, text: str) -> str:
        """Returns the text that SentencePiece is given."""
        settings = self.settings
        return normalize(text, lower_case=settings.lower_case, strip_accents=bool(settings.strip_accents))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special ids; what the vocabulary cannot spell gives `unk_id`."""
        return self._processor.encode(self.normalize(text), out_type=int)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Returns ids, and the span [start, end) of `text` that each piece stands for, the space before it left out.

        Where a character becomes several pieces, its span is that of each. A piece that is a space has an empty span.
        """
        aligned = AlignedText.of(text).collapse_spaces()
        for step in _steps(self.settings.lower_case, bool(self.settings.strip_accents)):
            aligned = aligned.apply(step)
        ids = self._processor.encode(aligned.text, out_type=int)
        pieces = self._processor.encode(aligned.text, out_type=str)  # unknown ones as they are in the text
        seen = self._as_seen_by_sentencepiece(aligned)
        spans: list[Span] = []
        end = 0
        for piece in pieces:
            start = end + len(piece) - len(piece.lstrip(WORD_BOUNDARY))
            end += len(piece)
            spans.append(seen.span(start, end))
        return ids, spans

    def _as_seen_by_sentencepiece(self, given: AlignedText) -> AlignedText:
        """Returns the text after the model's own normalisation, which composes, expands and drops characters too."""
        text, origins = self._processor.normalize(given.text, with_offsets=True)
        starts = [given.starts[origin] for origin in origins[:-1]]
        ends: list[int] = []
        source_end = origins[-1]
        for index in range(len(text) - 1, -1, -1):
            if origins[index + 1] > origins[index]:  # else the next character has the same source
                source_end = origins[index + 1]
                while not given.text[source_end - 1].isprintable() and not self._processor.encode(
                    given.text[source_end - 1]
                ):
                    source_end -= 1  # a control character, dropped
            ends.append(given.ends[source_end - 1])
        return AlignedText(text, starts, ends[::-1])

    def _encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        normalized = [self.normalize(text) for text in texts]
        return self._processor.encode(normalized, out_type=int, num_threads=1)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the normalised text of ids; control pieces are left out."""
        return self._processor.decode([int(i) for i in ids])

    @staticmethod
    def _original_strips_accents(lower_case: bool) -> bool:
        return True

    def _is_special(self, piece_id: int) -> bool:
        return self._processor.is_control(piece_id) or self._processor.is_unknown(piece_id)

    @staticmethod
    def _starts_word(piece: str) -> bool:
        if piece.startswith((WORD_BOUNDARY, "<")) or piece in _PUNCTUATION:
            return True
        return not all(character.lower() in _ENGLISH or character in _PUNCTUATION for character in piece)


def _with_own_scores(model: bytes) -> bytes:
    """Rounds the scores, and lowers those of pieces such as "2," by 100 (once: its own result is left as it is)."""
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
    for piece in proto.pieces:
        piece.score = round(piece.score / _SCORE_STEP) * _SCORE_STEP
    return proto.SerializeToString(deterministic=True)
