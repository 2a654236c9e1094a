import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.settings.data_preparation import TextConfig
from albert_tf_data_prep.documents import MAX_DOCUMENT_CHARACTERS, MAX_SENTENCE_CHARACTERS, read_documents, split_prose
from albert_tf_data_prep.text_inputs import ReadCounts, open_sources


def read(path, counts=None, **changes):
    config = TextConfig(input_file=str(path), output_dir="", **changes)
    (source,) = open_sources(config)
    return [d.sentences for d in read_documents(source, file_index=0, config=config, counts=counts or ReadCounts())]


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


def test_endless_marks_take_no_endless_time():
    assert split_prose("." * 1_000_000) == ["." * 1_000_000]
    assert split_prose("a" + "!" * 500_000 + "b") == ["a" + "!" * 500_000 + "b"]
    assert split_prose("A. " * 200_000) == [("A. " * 200_000).strip()]


def test_endless_sentences_are_cut_at_spaces_and_counted(tmp_path):
    counts = ReadCounts()
    path = write(tmp_path, "short\n" + "word " * 5_000 + "\n" + "x" * 12_000)
    ((short, *parts),) = read(path, counts)
    assert short == "short" and counts.sentences_cut == 2
    assert all(len(part) <= MAX_SENTENCE_CHARACTERS for part in parts)
    assert parts[-3:] == ["x" * 5_000, "x" * 5_000, "x" * 2_000]
    assert " ".join(parts[:-3]).split() == ["word"] * 5_000


def test_endless_documents_are_cut_between_sentences_and_counted(tmp_path):
    counts = ReadCounts()
    lines = [f"This is line {number}." for number in range(250_000)]
    documents = read(write(tmp_path, "\n".join(lines)), counts)
    assert counts.documents_cut == len(documents) - 1 == 2
    assert [sentence for document in documents for sentence in document] == lines
    assert max(sum(map(len, document)) for document in documents) < MAX_DOCUMENT_CHARACTERS + 100
