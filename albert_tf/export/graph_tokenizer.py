"""The tokenizers' behaviour as TensorFlow operations, for export; the only module that imports tensorflow-text."""

import abc
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple

import tensorflow as tf
import tensorflow_text
from sentencepiece import sentencepiece_model_pb2

from albert_tf.text.normalization import Step, hex_character_class, is_combining, is_nonspacing_mark
from albert_tf.text.sentencepiece_tokenizer import WORD_BOUNDARY
from albert_tf.text.tokenizer_files import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer
from albert_tf.text.wordpiece_tokenizer import CONTINUATION, IDEOGRAPHS, MAX_WORD_CHARACTERS, is_dropped, is_punctuation

# Two noncharacters, which no vocabulary has.
_UNKNOWN = "\uffff"
_MASK_STAND_IN = "\ufffe"  # stands for [MASK] where that is wanted, and cannot come from a text

_UTF8_BYTES = 4  # of a character, at most


class TokenizedText(NamedTuple):
    """Pieces [batch, (tokens)] and where in the normalised `text` [batch] each stands, in characters, end excluded.

    The space before a piece is left out of its span.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    text: tf.Tensor


class GraphTokenizer(tf.Module, abc.ABC):
    """Strings [batch] to ragged ids, equal to `Tokenizer.encode` on every character that Python's Unicode knows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="tokenizer")
        settings = tokenizer.settings
        self._mask = re.escape(tokenizer.vocabulary[tokenizer.mask_id])
        self._spaces = hex_character_class(str.isspace) + "+"
        self._lower = (
            _Corrected(lambda text: tf.strings.lower(text, "utf-8"), str.lower) if settings.lower_case else None
        )

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Maps strings [batch] to what is cut into pieces; bytes that are not UTF-8 become U+FFFD."""
        return self._normalize_clean(_clean(text))

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings [batch] to int32 ids [batch, (tokens)], without special ids."""
        return self._tokenize_normalized(self.normalize(text))

    @abc.abstractmethod
    def tokenize_masked(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [batch] in which the literal [MASK] is the mask: one piece, as in pre-training."""

    @abc.abstractmethod
    def tokenize_with_offsets(self, text: tf.Tensor) -> TokenizedText:
        """Tokenizes strings [batch] and says where in the normalised text each piece stands."""

    @abc.abstractmethod
    def _normalize_clean(self, text: tf.Tensor) -> tf.Tensor: ...

    @abc.abstractmethod
    def _tokenize_normalized(self, text: tf.Tensor) -> tf.RaggedTensor: ...

    def _with_stand_in(self, text: tf.Tensor) -> tf.Tensor:
        return tf.strings.regex_replace(_clean(text), self._mask, _MASK_STAND_IN)

    def _single_spaces(self, text: tf.Tensor) -> tf.Tensor:
        return tf.strings.regex_replace(tf.strings.regex_replace(text, self._spaces, " "), "^ | $", "")


def make_graph_tokenizer(tokenizer: Tokenizer) -> GraphTokenizer:
    """Returns the operations that do what `tokenizer` does."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return _GraphWordPiece(tokenizer)
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _GraphSentencePiece(tokenizer)
    raise TypeError(f"there are no TensorFlow operations for a {tokenizer.kind} tokenizer")


class _GraphSentencePiece(GraphTokenizer):
    """SentencePieceTokenizer as operations.

    Where two cuts of a text have the same score ("6 66" and "66 6"), the other one may be chosen.
    """

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__(tokenizer)
        self._mask_id = tokenizer.mask_id
        self._boundary_id = tokenizer.vocabulary.index(WORD_BOUNDARY)
        model = _with_mask_stand_in(tokenizer.model, tokenizer.mask_id)
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._decompose = _decomposing("NFKD") if tokenizer.settings.strip_accents else None
        self._combining = hex_character_class(is_combining) + "+"
        self._blank = hex_character_class(lambda c: _may_be_blank(c) and not tokenizer.encode(c))

    def _normalize_clean(self, text: tf.Tensor) -> tf.Tensor:
        # tf.strings.lower would cut the text at a NUL, which SentencePiece does not know either.
        text = self._single_spaces(tf.strings.regex_replace(text, r"\x00", _UNKNOWN))
        if self._decompose:
            text = tf.strings.regex_replace(self._decompose(text), self._combining, "")
        return self._lower(text) if self._lower else text

    def _tokenize_normalized(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._sentencepiece.tokenize(text)

    def tokenize_masked(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [batch] in which the literal [MASK] is the mask.

        The mask stands for one piece: a space before it belongs to it, and what follows it without a space goes on in
        the same word.
        """
        tokens = self._tokenize_normalized(self._normalize_clean(self._with_stand_in(text)))
        followed_by_mask = tf.concat([tokens.flat_values[1:] == self._mask_id, tf.zeros([1], tf.bool)], axis=0)
        is_space_of_mask = (tokens.flat_values == self._boundary_id) & followed_by_mask[: tf.size(tokens.flat_values)]
        return tf.ragged.boolean_mask(tokens, tokens.with_flat_values(~is_space_of_mask))

    def tokenize_with_offsets(self, text: tf.Tensor) -> TokenizedText:
        """Tokenizes strings [batch] and says where in the normalised text each piece stands."""
        text = self.normalize(text)
        ids, starts, ends = self._sentencepiece.tokenize_with_offsets(text)
        of_piece = tf.gather(text, ids.value_rowids())
        first = _characters_before(of_piece, starts.flat_values)
        last = _characters_before(of_piece, ends.flat_values)
        slices = tf.strings.substr(of_piece, starts.flat_values, ends.flat_values - starts.flat_values)
        without_lead = tf.strings.regex_replace(slices, f"^{self._blank}+", "")
        last -= _length(without_lead) - _length(tf.strings.regex_replace(without_lead, f"{self._blank}+$", ""))
        first += _length(slices) - _length(without_lead)
        # Of the pieces that SentencePiece makes of one character only the last has a place; the others get it as well.
        last = tf.maximum(last, first + tf.cast(ids.flat_values != self._boundary_id, tf.int32))
        return TokenizedText(ids, ids.with_flat_values(first), ids.with_flat_values(last), text)


class _GraphWordPiece(GraphTokenizer):
    """WordPieceTokenizer as operations."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        super().__init__(tokenizer)
        self._unk_id = tokenizer.unk_id
        vocabulary = list(tokenizer.vocabulary)
        vocabulary[tokenizer.mask_id] = _MASK_STAND_IN
        self._wordpiece = tensorflow_text.FastWordpieceTokenizer(
            vocab=vocabulary,
            suffix_indicator=CONTINUATION,
            max_bytes_per_word=MAX_WORD_CHARACTERS * _UTF8_BYTES,
            unknown_token=tokenizer.vocabulary[tokenizer.unk_id],
            token_out_type=tf.int32,
            no_pretokenization=True,
        )
        self._dropped = hex_character_class(lambda c: is_dropped(c) and unicodedata.category(c) != "Cs") + "+"
        self._decompose = _decomposing("NFD") if tokenizer.settings.strip_accents else None
        self._marks = hex_character_class(is_nonspacing_mark) + "+"
        self._single_character_words = f"([{IDEOGRAPHS}{_MASK_STAND_IN}]|{hex_character_class(is_punctuation)})"

    def _normalize_clean(self, text: tf.Tensor) -> tf.Tensor:
        text = tf.strings.regex_replace(text, self._dropped, "")
        if self._lower:
            text = self._lower(text)
        if self._decompose:
            text = tf.strings.regex_replace(self._decompose(text), self._marks, "")
        return self._single_spaces(tf.strings.regex_replace(text, self._single_character_words, r" \1 "))

    def _tokenize_normalized(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._wordpiece.tokenize(_spellable(tf.strings.split(text))).merge_dims(1, 2)

    def tokenize_masked(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [batch] in which the literal [MASK] is the mask, a word of its own."""
        return self._tokenize_normalized(self._normalize_clean(self._with_stand_in(text)))

    def tokenize_with_offsets(self, text: tf.Tensor) -> TokenizedText:
        """Tokenizes strings [batch] and says where in the normalised text each piece stands."""
        text = self.normalize(text)
        words = tf.strings.split(text)
        lengths = _length(words.flat_values)
        steps = lengths + 1  # with the space
        before = tf.concat([[0], tf.cumsum(steps)], axis=0)
        word_starts = before[:-1] - tf.gather(before, tf.gather(words.row_starts(), words.value_rowids()))
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(_spellable(words))
        word_of_piece = ids.values.value_rowids()
        word, word_start = tf.gather(words.flat_values, word_of_piece), tf.gather(word_starts, word_of_piece)
        first = word_start + _characters_before(word, starts.flat_values)
        last = word_start + _characters_before(word, ends.flat_values)
        last = tf.where(ids.flat_values == self._unk_id, word_start + tf.gather(lengths, word_of_piece), last)
        ids = ids.merge_dims(1, 2)
        return TokenizedText(ids, ids.with_flat_values(first), ids.with_flat_values(last), text)


class _Corrected:
    """An operation on text, corrected for the characters that its Unicode, older than Python's, does not know."""

    def __init__(self, operation: Callable[[tf.Tensor], tf.Tensor], step: Step) -> None:
        changed = [
            c for c in map(chr, range(1, sys.maxunicode + 1)) if unicodedata.category(c) != "Cs" and step(c) != c
        ]
        answers = operation(tf.constant(changed)).numpy()
        self._operation = operation
        self._missing = {c: step(c) for c, answer in zip(changed, answers, strict=True) if answer.decode() != step(c)}

    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        if self._missing:
            # Forty replacements are not free; hardly any text needs them.
            found = tf.strings.regex_full_match(text, f"(?s).*[{''.join(self._missing)}].*")
            text = tf.cond(tf.reduce_any(found), lambda: self._replace_missing(text), lambda: text)
        return self._operation(text)

    def _replace_missing(self, text: tf.Tensor) -> tf.Tensor:
        for character, replacement in self._missing.items():
            text = tf.strings.regex_replace(text, character, replacement)
        return text


def _decomposing(form: Literal["NFD", "NFKD"]) -> _Corrected:
    return _Corrected(
        lambda text: tensorflow_text.normalize_utf8(text, form), lambda text: unicodedata.normalize(form, text)
    )


def _may_be_blank(character: str) -> bool:
    return character in (WORD_BOUNDARY, "\ufffd") or unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp")


def _clean(text: tf.Tensor) -> tf.Tensor:
    """Returns valid UTF-8 without the stand-in."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    return tf.strings.regex_replace(text, _MASK_STAND_IN, _UNKNOWN)


def _spellable(words: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns words, of which those that are too long are replaced by an unknown one."""
    too_long = _length(words.flat_values) > MAX_WORD_CHARACTERS
    return words.with_flat_values(tf.where(too_long, _UNKNOWN, words.flat_values))


def _characters_before(text: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Maps byte offsets [n] into `text` [n] to int32 character offsets."""
    return _length(tf.strings.substr(text, tf.zeros_like(places), places))


def _length(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(text, unit="UTF8_CHAR")


def _with_mask_stand_in(model: bytes, mask_id: int) -> bytes:
    """Makes the mask a piece that SentencePiece finds in texts, under a name that no text has."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.pieces[mask_id].piece = _MASK_STAND_IN
    proto.pieces[mask_id].type = proto.SentencePiece.USER_DEFINED
    return proto.SerializeToString(deterministic=True)
