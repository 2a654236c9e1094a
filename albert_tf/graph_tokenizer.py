"""tokenizer.py's behaviour as TensorFlow ops, for export; the only module that imports tensorflow-text."""

import re
import sys
import unicodedata
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import UserError
from albert_tf.sentencepiece_tokenizer import MASK, WORD_BOUNDARY
from albert_tf.tokenizer import SentencePieceTokenizer, Tokenizer

# RE2's \s and \p{Mn} are other sets than Python's, so both classes are spelt out from Python's own tables.
# tf.strings.lower would cut the string at a NUL; this noncharacter is unknown to SentencePiece as well.
_NUL_STAND_IN = "\uffff"
_MASK_STAND_IN = "\ufffe"  # stands for [MASK] where that is wanted, and cannot come from a text


class GraphTokenizer(tf.Module):
    """Strings to ragged ids, equal to `SentencePieceTokenizer.encode` for characters up to Unicode 13.

    TensorFlow's lower-casing does not know the 40 capital letters that Unicode 14 added. Where two orders of the same
    pieces have the same score ("6 66" and "66 6"), its SentencePiece may choose the other one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer, SentencePieceTokenizer):
            raise UserError("the exported graph tokenises with SentencePiece only, not with a WordPiece vocabulary")
        super().__init__(name="tokenizer")
        self._lower_case = tokenizer.settings.lower_case
        self._mask_id = tokenizer.mask_id
        self._boundary_id = tokenizer.vocabulary.index(WORD_BOUNDARY)
        model = _with_mask_stand_in(tokenizer.model, tokenizer.mask_id)
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._spaces = _character_class(str.isspace)
        self._combining = _character_class(lambda character: unicodedata.combining(character) != 0)

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Maps strings [batch] to what SentencePiece is given; bytes that are not UTF-8 become U+FFFD."""
        return self._normalize_clean(_clean(text))

    def _normalize_clean(self, text: tf.Tensor) -> tf.Tensor:
        text = tf.strings.regex_replace(text, self._spaces + "+", " ")
        text = tf.strings.regex_replace(text, "^ | $", "")
        text = tensorflow_text.normalize_utf8(text, "NFKD")
        text = tf.strings.regex_replace(text, self._combining + "+", "")
        return tf.strings.lower(text, encoding="utf-8") if self._lower_case else text

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings [batch] to int32 ids [batch, (tokens)], without special ids."""
        return self._sentencepiece.tokenize(self.normalize(text))

    def tokenize_masked(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [batch] in which the literal [MASK] is the mask.

        The mask stands for one piece: a space before it belongs to it, and what follows it without a space goes on in
        the same word.
        """
        text = tf.strings.regex_replace(_clean(text), re.escape(MASK), _MASK_STAND_IN)
        tokens = self._sentencepiece.tokenize(self._normalize_clean(text))
        followed_by_mask = tf.concat([tokens.flat_values[1:] == self._mask_id, tf.zeros([1], tf.bool)], axis=0)
        is_space_of_mask = (tokens.flat_values == self._boundary_id) & followed_by_mask[: tf.size(tokens.flat_values)]
        return tf.ragged.boolean_mask(tokens, tokens.with_flat_values(~is_space_of_mask))


def _clean(text: tf.Tensor) -> tf.Tensor:
    """Returns valid UTF-8 without NUL and without the stand-ins."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    return tf.strings.regex_replace(text, rf"[\x00{_MASK_STAND_IN}]", _NUL_STAND_IN)


def _with_mask_stand_in(model: bytes, mask_id: int) -> bytes:
    """Makes the mask a piece that SentencePiece finds in texts, under a name that no text has."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.pieces[mask_id].piece = _MASK_STAND_IN
    proto.pieces[mask_id].type = proto.SentencePiece.USER_DEFINED
    return proto.SerializeToString(deterministic=True)


def _character_class(contains: Callable[[str], bool]) -> str:
    """Returns an RE2 character class of the code points for which `contains` is true."""
    points = [point for point in range(sys.maxunicode + 1) if contains(chr(point))]
    ranges: list[list[int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"
