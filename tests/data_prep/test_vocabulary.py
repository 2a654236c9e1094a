import dataclasses
import errno
import json

import pytest

from albert_tf.errors import UserError
from albert_tf.files import locked_directory
from albert_tf.settings.data_preparation import VocabConfig
from albert_tf.text.tokenizer_files import SentencePieceTokenizer
from albert_tf_data_prep.vocabulary import train_vocabulary


def make_config(alice_text, directory, **changes):
    settings = {"input_file": str(alice_text), "output_dir": str(directory), "vocab_size": 600,
                "document_mode": "heading", "sentence_split": "prose"}  # fmt: skip
    return VocabConfig(**{**settings, **changes})


def test_special_pieces_have_alberts_ids(alice_vocab):
    tokenizer = SentencePieceTokenizer.load(alice_vocab)
    assert tokenizer.vocab_size == 600
    assert tokenizer.pieces(range(5)) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.pieces(range(5, 13)) == ["(", ")", '"', "-", ".", "–", "£", "€"]
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]


def test_it_fits_the_text_it_was_trained_on(alice_text, alice_vocab):
    tokenizer = SentencePieceTokenizer.load(alice_vocab)
    ids = tokenizer.encode(alice_text.read_text(encoding="utf-8"))
    assert ids.count(tokenizer.unk_id) / len(ids) < 0.001


def test_training_repeats(alice_text, alice_vocab, tmp_path):
    train_vocabulary(make_config(alice_text, tmp_path))
    assert (tmp_path / "spiece.model").read_bytes() == (alice_vocab / "spiece.model").read_bytes()


def test_the_seed_decides_the_sample(alice_text, tmp_path):
    models = set()
    for index, seed in enumerate([1, 1, 2]):
        config = make_config(
            alice_text, tmp_path / str(index), vocab_size=200, input_sentence_size=150, random_seed=seed
        )
        models.add(train_vocabulary(config).fingerprint)
    assert len(models) == 2


def test_case_and_accents_are_kept_where_asked_for_and_stored(alice_text, tmp_path):
    tokenizer = train_vocabulary(make_config(alice_text, tmp_path, do_lower_case=False, strip_accents=False))
    assert tokenizer.encode("Alice") != tokenizer.encode("alice")
    assert json.loads((tmp_path / "tokenizer_settings.json").read_text()) == {
        "kind": "sentencepiece",
        "lower_case": False,
        "strip_accents": False,
    }


def test_the_same_command_again_does_nothing_and_another_is_refused(alice_text, alice_vocab):
    before = (alice_vocab / "spiece.model").stat().st_mtime_ns
    config = make_config(alice_text, alice_vocab)
    train_vocabulary(config)
    assert (alice_vocab / "spiece.model").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="made with a different vocab_size"):
        train_vocabulary(dataclasses.replace(config, vocab_size=500))


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        ("", 100, "the input has no text: every line is empty"),
        (" \n\t\n", 100, "the input has no text: every line is empty"),
        (
            "Only a few words.\n",
            5000,
            "--vocab_size=5000 is too large .* it gives at most .* pieces: pass that or less",
        ),
        ("".join(map(chr, range(0x4E00, 0x4F00))) + "\n", 40, "too small for this text|cannot train"),
    ],
)
def test_sizes_that_do_not_fit_the_text_are_refused(tmp_path, content, size, message):
    path = tmp_path / "text.txt"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        train_vocabulary(make_config(path, tmp_path / "out", vocab_size=size))
    assert not (tmp_path / "out").exists()


def test_a_bad_line_is_reported_with_its_place_and_not_by_sentencepiece(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\n" * 100 + b"\xff\n")
    with pytest.raises(UserError, match="text.txt:101: text must be UTF-8"):
        train_vocabulary(make_config(path, tmp_path / "out"))


class FullDisk:
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        pass


def test_a_log_that_cannot_be_written_ends_training(alice_text, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        train_vocabulary(make_config(alice_text, tmp_path / "out"))


def test_two_trainings_do_not_write_into_one_directory(alice_text, tmp_path):
    with (
        locked_directory(tmp_path / "out", what="x"),
        pytest.raises(UserError, match="another process is training a vocabulary in"),
    ):
        train_vocabulary(make_config(alice_text, tmp_path / "out"))
