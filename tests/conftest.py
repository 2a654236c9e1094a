"""Fixtures: small real text, tokenizers, and models that are made once for the whole run."""

import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import pytest
import tensorflow as tf

from albert_tf.text.tokenizer_files import SentencePieceTokenizer

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
hypothesis.settings.load_profile("any machine")

# Four CPU devices, so that replicas can be compared with one. Must come before TensorFlow sets its devices up.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"
BOOKS = DATA / "books"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def english_tokenizer() -> SentencePieceTokenizer:
    """The published 30,000-piece model."""
    return SentencePieceTokenizer.load(GOLDEN / "tokenization" / "spiece.model", lower_case=True)


@pytest.fixture(scope="session")
def alice_text(tmp_path_factory) -> Path:
    """The first 60,000 characters of Alice, as headings and paragraphs."""
    source = next(BOOKS.glob("Lewis-Carroll__Alice*"))
    path = tmp_path_factory.mktemp("text") / "alice.txt"
    path.write_text(source.read_text(encoding="utf-8")[:60_000], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def alice_vocab(alice_text, tmp_path_factory) -> Path:
    """A directory with a vocabulary of 600 pieces."""
    from albert_tf.settings.data_preparation import VocabConfig
    from albert_tf_data_prep.vocabulary import train_vocabulary

    directory = tmp_path_factory.mktemp("vocab")
    train_vocabulary(
        VocabConfig(
            input_file=str(alice_text),
            output_dir=str(directory),
            vocab_size=600,
            document_mode="heading",
            sentence_split="prose",
        )
    )
    return directory


@pytest.fixture(scope="session")
def small_tokenizer(alice_text, tmp_path_factory) -> SentencePieceTokenizer:
    """A tokenizer of 300 pieces, as many as the fine-tuned golden models have."""
    from albert_tf.settings.data_preparation import VocabConfig
    from albert_tf_data_prep.vocabulary import train_vocabulary

    directory = tmp_path_factory.mktemp("small_vocab")
    flags = {"vocab_size": 300, "document_mode": "heading", "sentence_split": "prose"}
    train_vocabulary(VocabConfig(input_file=str(alice_text), output_dir=str(directory), **flags))
    return SentencePieceTokenizer.load(directory)


@pytest.fixture(scope="session")
def alice_records(alice_text, alice_vocab, tmp_path_factory) -> Path:
    """A directory of records of length 32 with a held-out chapter."""
    from albert_tf.settings.data_preparation import RecordsConfig
    from albert_tf_data_prep.pretraining_records import create_records

    directory = tmp_path_factory.mktemp("records")
    create_records(
        RecordsConfig(
            input_file=str(alice_text),
            output_dir=str(directory),
            spm_model_file=str(alice_vocab / "spiece.model"),
            document_mode="heading",
            sentence_split="prose",
            max_seq_length=32,
            dupe_factor=2,
            eval_fraction=0.3,
            num_shards=2,
            num_workers=1,
        )
    )
    return directory


@pytest.fixture(scope="session")
def run_directory(alice_vocab, tmp_path_factory) -> Path:
    """What run_pretraining leaves of a tiny model with random weights and a sentence-order head."""
    import checks

    return checks.save_random_run(tmp_path_factory.mktemp("run"), alice_vocab, heads=("sentence_order",))


@pytest.fixture(scope="session")
def served_checkpoint(alice_vocab, tmp_path_factory) -> Path:
    """A directory with the original's checkpoint of two groups and optimizer slots, and a tokenizer that fits it."""
    directory = tmp_path_factory.mktemp("served_checkpoint")
    for source in (GOLDEN / "tf1_checkpoint" / "groups2_slots", alice_vocab):
        for file in source.iterdir():
            shutil.copy(file, directory)
    return directory


@pytest.fixture(scope="session")
def exported(served_checkpoint, tmp_path_factory) -> Path:
    """Version 3 of a served model, made from `served_checkpoint`."""
    from albert_tf.checkpoints.opening import open_checkpoint
    from albert_tf.export.saved_model_writer import export_saved_model

    return export_saved_model(
        open_checkpoint(served_checkpoint), output_dir=tmp_path_factory.mktemp("export"), version=3
    )


@pytest.fixture(scope="session")
def session_model(exported):
    """The export as a server loads it."""
    from albert_tf.saved_model.session_loader import SessionModel

    return SessionModel(exported)
