"""Lines of text to documents: lists of sentences."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from albert_tf.settings.data_preparation import TextConfig
from albert_tf_data_prep.text_inputs import ReadCounts, TextSource

MAX_SENTENCE_CHARACTERS = 5_000
MAX_DOCUMENT_CHARACTERS = 2**21
_LONGEST_ABBREVIATION = 16  # with an opening quote or bracket

_HEADING = re.compile(r"#{1,6}\s")
_THEMATIC_BREAK = re.compile(r"(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}")

# A sentence ends at . ! ? or an ellipsis, with any closing quotes and brackets, before a space and a new beginning
# (anything but a lower-case letter), or at a full-width mark, which needs no space.
_FULL_WIDTH = frozenset("\u3002\uff01\uff1f\uff0e")
_MARKS = ".!?\u2026\u0964\u061f\u06d4" + "".join(sorted(_FULL_WIDTH))
_CLOSING = "\"'\u2019\u201d\u00bb)\\]}\u300d\u300f\uff09\u3011"
_SENTENCE_END = re.compile(f"[{_MARKS}][{_MARKS}]*+[{_CLOSING}]*+")  # the first class lets the search skip fast
_BEGINNING = re.compile(r"\s+(\S)")
# A period after these, or after a single capital letter (an initial), does not end a sentence.
_ABBREVIATIONS = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "st",
        "prof",
        "rev",
        "hon",
        "capt",
        "col",
        "gen",
        "lt",
        "sgt",
        "messrs",
        "vs",
        "etc",
        "e.g",
        "i.e",
        "cf",
        "vol",
        "fig",
    ]
)


class Document(NamedTuple):
    """A document's sentences and its place: file number, and number within the file."""

    file_index: int
    index_in_file: int
    sentences: list[str]


def read_all_documents(sources: Sequence[TextSource], *, config: TextConfig, counts: ReadCounts) -> Iterator[Document]:
    """Yields the documents of all sources, in order."""
    for index, source in enumerate(sources):
        yield from read_documents(source, file_index=index, config=config, counts=counts)


def read_documents(
    source: TextSource, *, file_index: int, config: TextConfig, counts: ReadCounts
) -> Iterator[Document]:
    """Yields the documents of one source that have at least one sentence; the end of a text ends a document.

    Endless ones are cut, and counted, so that no text needs more than bounded memory.
    """
    sentences: list[str] = []
    index = characters = 0
    for _, line in source.lines(config, counts):
        boundary, text = _interpret(line, config.document_mode)
        if boundary and sentences:
            yield Document(file_index, index, sentences)
            sentences, index, characters = [], index + 1, 0
        if not text:
            continue
        for sentence in split_prose(text) if config.sentence_split == "prose" else [text]:
            for part in _cut(sentence, counts):
                if characters > MAX_DOCUMENT_CHARACTERS:
                    counts.documents_cut += 1
                    yield Document(file_index, index, sentences)
                    sentences, index, characters = [], index + 1, 0
                sentences.append(part)
                characters += len(part)


def _cut(sentence: str, counts: ReadCounts) -> list[str]:
    """Cuts a sentence of more than MAX_SENTENCE_CHARACTERS, at spaces where there are some."""
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return [sentence]
    counts.sentences_cut += 1
    parts, begin = [], 0
    while len(sentence) - begin > MAX_SENTENCE_CHARACTERS:
        end = begin + MAX_SENTENCE_CHARACTERS
        space = sentence.rfind(" ", begin + 1, end)
        end = end if space < 0 else space
        parts.append(sentence[begin:end].strip())
        begin = end
    return [part for part in (*parts, sentence[begin:].strip()) if part]


def split_prose(text: str) -> list[str]:
    """Cuts a paragraph into sentences.

    The rule: a sentence ends at `. ! ? …` and marks like them (with closing quotes and brackets) when white space and
    something other than a lower-case letter follow, and at the full-width `。 ！ ？` always. A period ends none after
    an initial or a common English abbreviation ("Mr.", "e.g.").
    """
    sentences, begin = [], 0
    for match in _SENTENCE_END.finditer(text):
        end = match.end()
        marks = match[0]
        if _FULL_WIDTH.isdisjoint(marks):
            beginning = _BEGINNING.match(text, end)
            if beginning is None or beginning[1].islower():
                continue
            if marks == "." and _is_abbreviation(text[max(begin, end - _LONGEST_ABBREVIATION) : end - 1]):
                continue
        sentences.append(text[begin:end].strip())
        begin = end
    sentences.append(text[begin:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_abbreviation(text: str) -> bool:
    """Returns whether a text that a period follows ends with an abbreviation or an initial."""
    word = text.rsplit(None, 1)[-1].lstrip("(\"'\u2018\u201c") if text.strip() else ""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


def _interpret(line: str | None, document_mode: str) -> tuple[bool, str]:
    """Returns whether a document ends before this line (None: the end of a text), and the line's text ("" for none)."""
    if line is None:
        return True, ""
    if document_mode == "blank_line":
        return not line, line
    if document_mode == "heading":
        if _HEADING.match(line):
            return True, ""
        return False, "" if _THEMATIC_BREAK.fullmatch(line) else line
    return document_mode == "line", line
