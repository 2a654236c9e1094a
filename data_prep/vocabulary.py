"""SentencePiece training as ALBERT's authors ran it (README of TF1 ALBERT), on the tokenizer's normalised text."""

import dataclasses
import io
import random
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from absl import logging
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.files import differing_keys, locked_directory, read_json, require_writable, write_json
from albert_tf.settings.data_preparation import VocabConfig
from albert_tf.text.sentencepiece_tokenizer import (
    CLS,
    MASK,
    MODEL_FILE,
    PAD,
    SEP,
    UNK,
    SentencePieceTokenizer,
    normalize,
)
from albert_tf.text.tokenizer_files import TokenizerSettings
from albert_tf_data_prep.documents import read_all_documents
from albert_tf_data_prep.text_inputs import ReadCounts, TextSource, open_sources

TRAINING_FILE = "vocab_training.json"

# Ids 5 to 12. A list: as one comma-separated string the ASCII quote would swallow the symbols after it.
USER_DEFINED_SYMBOLS = ["(", ")", '"', "-", ".", "\u2013", "\u00a3", "\u20ac"]

_MAX_SENTENCE_BYTES = 4 * 100_000  # SentencePiece drops longer lines without a word; documents.py cuts far shorter ones
_TRAINER_THREADS = 16  # fixed: sums over threads decide the last digits of the scores


def train_vocabulary(config: VocabConfig) -> SentencePieceTokenizer:
    """Trains a vocabulary and writes it with its settings into `config.output_dir`; returns the tokenizer.

    Where the directory already holds the result of the same settings and inputs, nothing is done.
    """
    sources = open_sources(config)
    directory = Path(config.output_dir)
    require_writable(directory, flag="--output_dir")
    settings = _settings(config, sources)
    with locked_directory(directory, what="training a vocabulary in"):
        finished = _finished(directory, settings)
        if finished:
            logging.info("%s holds this vocabulary already; nothing to do.", directory)
            return finished
        return _train_and_save(config, sources, settings)


def _train_and_save(
    config: VocabConfig, sources: Sequence[TextSource], settings: dict[str, Any]
) -> SentencePieceTokenizer:
    directory, counts = Path(config.output_dir), ReadCounts()
    sample = _read_sample(config, sources, counts)
    if not sample:
        raise UserError("the input has no text: every line is empty")
    model = _train(config, sample)
    tokenizer = SentencePieceTokenizer(
        model, TokenizerSettings(lower_case=config.do_lower_case, strip_accents=config.strip_accents)
    )
    tokenizer.save(directory)
    settings["lines_with_invalid_bytes"] = counts.lines_with_invalid_bytes
    settings["fingerprint"] = tokenizer.fingerprint
    write_json(directory / TRAINING_FILE, settings)
    logging.info("%d pieces from %s MB of text are in %s", tokenizer.vocab_size, f"{counts.text_bytes / 1e6:.1f}",
                 directory / MODEL_FILE)  # fmt: skip
    return tokenizer


def _settings(config: VocabConfig, sources: Sequence[TextSource]) -> dict[str, Any]:
    settings = dataclasses.asdict(config)
    for name in config.PLACES:
        del settings[name]
    settings["input"] = [source.identity() for source in sources]
    return settings


def _finished(directory: Path, settings: dict[str, Any]) -> SentencePieceTokenizer | None:
    """Returns the vocabulary of a finished run with equal settings, None without one; others raise UserError."""
    path = directory / TRAINING_FILE
    if not path.exists():
        if (directory / MODEL_FILE).exists():
            raise UserError(f"{directory} holds a vocabulary from elsewhere; choose another --output_dir or delete it")
        return None
    recorded = read_json(path, what="record of vocabulary training")
    fingerprint = recorded.pop("fingerprint")
    del recorded["lines_with_invalid_bytes"]
    different = differing_keys(recorded, settings)
    if different:
        raise UserError(f"{directory} holds a vocabulary made with a different {', '.join(different)}; "
                        "choose another --output_dir or delete that one")  # fmt: skip
    tokenizer = SentencePieceTokenizer.load(directory)
    if tokenizer.fingerprint != fingerprint:
        raise UserError(f"{directory / MODEL_FILE} was changed after its training; delete {directory} and train again")
    return tokenizer


def _read_sample(config: VocabConfig, sources: Sequence[TextSource], counts: ReadCounts) -> list[str]:
    """Returns the sentences, or a seeded random sample of `input_sentence_size` of them.

    SentencePiece could draw the sample too, but always draws the same one.
    """
    generator = random.Random(config.random_seed)
    sample: list[str] = []
    seen = 0
    total = sum(source.size_bytes for source in sources)
    with tqdm(total=total, unit="B", unit_scale=True, desc="Reading text", mininterval=1.0) as progress:
        for document in read_all_documents(sources, config=config, counts=counts):
            progress.update(counts.input_bytes - progress.n)
            for sentence in document.sentences:
                seen += 1
                if len(sample) < config.input_sentence_size:
                    sample.append(sentence)
                elif (slot := generator.randrange(seen)) < len(sample):
                    sample[slot] = sentence
        progress.update(counts.input_bytes - progress.n)
    logging.info("Training on %s of %s sentences; this takes from seconds to, for gigabytes of text, hours",
                 f"{len(sample):,}", f"{seen:,}")  # fmt: skip
    return sample


def _normalized(sample: list[str], config: VocabConfig) -> Iterator[str]:
    """Yields the normalised sentences and empties `sample`, because the trainer keeps its own copy."""
    sample.reverse()
    while sample:
        yield normalize(sample.pop(), lower_case=config.do_lower_case, strip_accents=config.strip_accents)


def _train(config: VocabConfig, sample: list[str]) -> bytes:
    """Returns a trained model. The trainer runs in a thread, so that an interrupt need not wait for its end."""
    model = io.BytesIO()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _run_trainer(config, _normalized(sample, config), model)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(timeout=0.1)
    if failures and isinstance(failures[0], RuntimeError):
        raise UserError(_explain(str(failures[0]), config)) from None
    if failures:
        raise failures[0] from None
    return model.getvalue()


def _run_trainer(config: VocabConfig, sentences: Iterator[str], model: io.BytesIO) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences,
        model_writer=model,
        model_type="unigram",
        vocab_size=config.vocab_size,
        character_coverage=config.character_coverage,
        max_sentence_length=_MAX_SENTENCE_BYTES,
        num_threads=_TRAINER_THREADS,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece=PAD,
        unk_piece=UNK,
        control_symbols=[CLS, SEP, MASK],
        user_defined_symbols=USER_DEFINED_SYMBOLS,
        minloglevel=1,
    )


def _explain(message: str, config: VocabConfig) -> str:
    """Returns SentencePiece's complaint as a sentence for the user."""
    limit = re.search(r"set it to a value <= (\d+)", message)
    if limit:
        return (
            f"--vocab_size={config.vocab_size} is too large for this text; it gives at most {limit[1]} pieces: pass "
            "that or less, and put the same number into the model's configuration (vocab_size)"
        )
    if "Vocabulary size is smaller than required_chars" in message:
        return f"--vocab_size={config.vocab_size} is too small for this text: {message.split('] ')[-1]}"
    return f"SentencePiece cannot train on this text: {message or 'there is none'}"
