"""Text files to documents: lists of sentences, with the file and line that each came from."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from albert_tf.errors import UserError
from albert_tf.run_config import TextConfig

MAX_SENTENCE_CHARACTERS = 100_000
_MAX_LINE_BYTES = 64 * 2**20

_HEADING = re.compile(r"#{1,6}\s")
_THEMATIC_BREAK = re.compile(r"(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}")

# A sentence ends at . ! ? or an ellipsis, with any closing quotes and brackets, before a space and a new beginning
# (anything but a lower-case letter), or at a full-width mark, which needs no space. A run of marks is tried once only.
_CLOSING = "\"'\u2019\u201d\u00bb)\\]}\u300d\u300f\uff09\u3011"
_SENTENCE_END = re.compile(
    rf"(?<![.!?\u2026\u0964\u061f\u06d4])(?P<latin>[.!?\u2026\u0964\u061f\u06d4]++[{_CLOSING}]*+)(?=\s+(?P<next>\S))"
    rf"|[\u3002\uff01\uff1f\uff0e]+[{_CLOSING}]*"
)
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


class ReadCounts:
    """What was met while reading; grows as documents are read."""

    def __init__(self) -> None:
        self.text_bytes = 0
        self.lines = 0
        self.lines_with_invalid_bytes = 0


def read_documents(path: Path, *, file_index: int, config: TextConfig, counts: ReadCounts) -> Iterator[Document]:
    """Yields the documents of one file that have at least one sentence; its end ends a document.

    Raises UserError, with file and line, for invalid bytes (unless they are to be replaced) and endless sentences.
    """
    sentences: list[str] = []
    index = 0
    for number, line in _read_lines(path, config=config, counts=counts):
        boundary, text = _interpret(line, config.document_mode)
        if boundary and sentences:
            yield Document(file_index, index, sentences)
            sentences, index = [], index + 1
        if text:
            sentences += _sentences(text, path=path, line_number=number, config=config)
    if sentences:
        yield Document(file_index, index, sentences)


def split_prose(text: str) -> list[str]:
    """Cuts a paragraph into sentences.

    The rule: a sentence ends at `. ! ? …` and marks like them (with closing quotes and brackets) when white space and
    something other than a lower-case letter follow, and at the full-width `。 ！ ？` always. A period ends none after
    an initial or a common English abbreviation ("Mr.", "e.g.").
    """
    sentences, begin = [], 0
    for match in _SENTENCE_END.finditer(text):
        if match["latin"] and (match["next"].islower() or _is_abbreviation(text[begin : match.end()])):
            continue
        sentences.append(text[begin : match.end()].strip())
        begin = match.end()
    sentences.append(text[begin:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_abbreviation(sentence: str) -> bool:
    word = sentence.rsplit(None, 1)[-1].lstrip("(\"'\u2018\u201c")
    if not word.endswith(".") or word.endswith(".."):
        return False
    stem = word[:-1]
    return stem.lower() in _ABBREVIATIONS or (len(stem) == 1 and stem.isupper() and stem != "I")


def _interpret(line: str, document_mode: str) -> tuple[bool, str]:
    """Returns whether a document ends before this line, and the line's text ("" for none)."""
    if document_mode == "blank_line":
        return not line, line
    if document_mode == "heading":
        if _HEADING.match(line):
            return True, ""
        return False, "" if _THEMATIC_BREAK.fullmatch(line) else line
    return document_mode == "line", line


def _sentences(text: str, *, path: Path, line_number: int, config: TextConfig) -> list[str]:
    sentences = split_prose(text) if config.sentence_split == "prose" else [text]
    longest = max(map(len, sentences))
    if longest > MAX_SENTENCE_CHARACTERS:
        advice = "" if config.sentence_split == "prose" else ", or use --sentence_split=prose"
        raise UserError(
            f"{path}:{line_number}: a sentence may have at most {MAX_SENTENCE_CHARACTERS:,} characters; this one has "
            f"{longest:,}. Put one sentence on a line{advice}"
        )
    return sentences


def _read_lines(path: Path, *, config: TextConfig, counts: ReadCounts) -> Iterator[tuple[int, str]]:
    """Yields numbered lines without surrounding white space; \\n ends a line, a byte-order mark is dropped."""
    with open(path, "rb") as stream:
        number = 0
        while raw := stream.readline(_MAX_LINE_BYTES):
            number += 1
            if len(raw) == _MAX_LINE_BYTES:
                raise UserError(f"{path}:{number}: a line may have at most {_MAX_LINE_BYTES:,} bytes")
            counts.text_bytes += len(raw)
            counts.lines += 1
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            yield number, _decode(raw, place=f"{path}:{number}", config=config, counts=counts).strip()


def _decode(raw: bytes, *, place: str, config: TextConfig, counts: ReadCounts) -> str:
    try:
        text = raw.decode("utf-8")
        problem = "a NUL byte (is the file UTF-16?)" if "\0" in text else None
    except UnicodeDecodeError as error:
        text = raw.decode("utf-8", errors="replace")
        problem = f"a byte that is not UTF-8 (0x{raw[error.start]:02x} at byte {error.start + 1})"
    if problem is None:
        return text
    if config.invalid_bytes == "refuse":
        raise UserError(f"{place}: text must be UTF-8; this line has {problem}. Convert the file, "
                        "or pass --invalid_bytes=replace to put U+FFFD there")  # fmt: skip
    counts.lines_with_invalid_bytes += 1
    return text.replace("\0", "\ufffd")
