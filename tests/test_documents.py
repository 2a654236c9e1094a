import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.run_config import TextConfig
from data_prep.documents import ReadCounts, read_documents, split_prose


def read(path, counts=None, **changes):
    config = TextConfig(input_file=str(path), output_dir="", **changes)
    return [d.sentences for d in read_documents(path, file_index=0, config=config, counts=counts or ReadCounts())]


def write(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_blank_lines_end_documents_and_lines_are_sentences(tmp_path):
    path = write(tmp_path, "\n one \ntwo\n\n\t\nthree\r\n")
    assert read(path) == [["one", "two"], ["three"]]


def test_headings_end_documents_and_are_no_text(tmp_path):
    path = write(tmp_path, "# Title\n\n-------\n\n## Chapter 1\n\nA b. C d.\n\nE.\n\n## Chapter 2\n\n#hashtag\n")
    documents = read(path, document_mode="heading", sentence_split="prose")
    assert documents == [["A b.", "C d.", "E."], ["#hashtag"]]


def test_file_and_line_modes(tmp_path):
    path = write(tmp_path, "a\n\nb\n")
    assert read(path, document_mode="file") == [["a", "b"]]
    assert read(path, document_mode="line") == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        ('"Stop!" he cried. Then silence.', ['"Stop!" he cried.', "Then silence."]),
        ("“Why?” Alice asked.", ["“Why?”", "Alice asked."]),
        ("Mr. Smith met Dr. J. Watson, e.g. at noon. Good.", ["Mr. Smith met Dr. J. Watson, e.g. at noon.", "Good."]),
        ("It cost 3.50 in all... and more.", ["It cost 3.50 in all... and more."]),
        ("It was I. He knew.", ["It was I.", "He knew."]),
        ("今天很好。你呢？「好！」他說。", ["今天很好。", "你呢？", "「好！」", "他說。"]),
        ("नमस्ते। आप कैसे हैं?", ["नमस्ते।", "आप कैसे हैं?"]),
        ("no end", ["no end"]),
        ("...", ["..."]),
    ],
)
def test_prose_is_cut_at_sentence_ends(text, sentences):
    assert split_prose(text) == sentences


@given(st.text())
def test_cutting_prose_loses_nothing_but_white_space(text):
    assert "".join("".join(split_prose(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nbad \xff byte\n", r"text.txt:2: text must be UTF-8; .*0xff at byte 5"),
        (b"fine\n\nnul \x00 here\n", r"text.txt:3: .*NUL byte"),
        ("text".encode("utf-16"), r"text.txt:1: .*not UTF-8"),
    ],
)
def test_invalid_bytes_are_refused_with_their_place(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, content))


def test_invalid_bytes_can_be_replaced_and_are_counted(tmp_path):
    counts = ReadCounts()
    path = write(tmp_path, b"bad \xff byte\nfine\nnul \x00\n")
    assert read(path, counts, invalid_bytes="replace") == [["bad \ufffd byte", "fine", "nul \ufffd"]]
    assert counts.lines_with_invalid_bytes == 2
    assert counts.text_bytes == path.stat().st_size


def test_endless_marks_take_no_endless_time():
    assert split_prose("." * 1_000_000) == ["." * 1_000_000]
    assert split_prose("a" + "!" * 500_000 + "b") == ["a" + "!" * 500_000 + "b"]


def test_a_byte_order_mark_is_dropped(tmp_path):
    assert read(write(tmp_path, "\ufeffone\n")) == [["one"]]


def test_an_endless_sentence_is_refused_with_its_place_and_advice(tmp_path):
    path = write(tmp_path, "short\n" + "word " * 200_000)
    with pytest.raises(UserError, match=r"text.txt:2: a sentence may have at most 100,000 .*--sentence_split=prose"):
        read(path)
    with pytest.raises(UserError, match=r"text.txt:2: a sentence may have at most"):
        read(path, sentence_split="prose")
    assert len(read(write(tmp_path, "A word. " * 200_000), sentence_split="prose")[0]) == 200_000
