"""tokenizer.py's behaviour as TensorFlow ops, for export; the only module that imports tensorflow-text."""

import sys
import unicodedata
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text

from albert_tf.errors import UserError
from albert_tf.tokenizer import SentencePieceTokenizer, Tokenizer

# RE2's \s and \p{Mn} are other sets than Python's, so both classes are spelt out from Python's own tables.
# tf.strings.lower would cut the string at a NUL; this noncharacter is unknown to SentencePiece as well.
_NUL_STAND_IN = "\uffff"


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
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(model=tokenizer.model, out_type=tf.int32)
        self._spaces = _character_class(str.isspace)
        self._combining = _character_class(lambda character: unicodedata.combining(character) != 0)

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Maps strings [batch] to what SentencePiece is given; bytes that are not UTF-8 become U+FFFD."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        text = tf.strings.regex_replace(text, r"\x00", _NUL_STAND_IN)
        text = tf.strings.regex_replace(text, self._spaces + "+", " ")
        text = tf.strings.regex_replace(text, "^ | $", "")
        text = tensorflow_text.normalize_utf8(text, "NFKD")
        text = tf.strings.regex_replace(text, self._combining + "+", "")
        return tf.strings.lower(text, encoding="utf-8") if self._lower_case else text

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings [batch] to int32 ids [batch, (tokens)], without special ids."""
        return self._sentencepiece.tokenize(self.normalize(text))


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
