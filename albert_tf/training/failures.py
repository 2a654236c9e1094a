"""What TensorFlow raises in the middle of a run, as one sentence each with what to do."""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records.framing import read_records

_SEARCH_SECONDS = 40.0
_HEADINGS = ("Graph execution error", "Detected at node", "  File ", "<stack traces unavailable>")
_LOST_WORKER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)


@contextlib.contextmanager
def failures_as_sentences(files: Sequence[Path]) -> Iterator[None]:
    """Turns TensorFlow's errors that have a known cause into UserErrors; `files` are the records being read."""
    try:
        yield
    except tf.errors.OpError as error:
        sentence = _sentence(error, files)
        if sentence is None:
            raise
        raise UserError(sentence) from None


def _sentence(error: tf.errors.OpError, files: Sequence[Path]) -> str | None:
    """Returns what went wrong and what to do, or None for an error that is not understood."""
    message = error.message or ""
    told = [line for line in message.splitlines() if line.strip() and not line.startswith(_HEADINGS)]
    first_line = told[0].strip() if told else type(error).__name__
    if "No space left" in message or "disk quota" in message.lower():
        return "the disk is full; make room and repeat the command, which goes on from the newest checkpoint"
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return (
            f"out of memory ({first_line}); raise --gradient_accumulation_steps, which changes only rounding, or "
            "lower --train_batch_size"
        )
    if isinstance(error, tf.errors.DataLossError | tf.errors.OutOfRangeError):
        return _damaged_record(files) or f"a record is damaged ({first_line}); make the records again"
    if OUTSIDE_VOCABULARY in message:
        number = re.search(rf"{OUTSIDE_VOCABULARY}\D*(\d+)", message)
        return (
            f"a record has {OUTSIDE_VOCABULARY}{f' ({number[1]})' if number else ''}: the records were made with "
            "a different vocabulary from the one that vocab_size of the model says; make them again, or correct the "
            "configuration"
        )
    if isinstance(error, tf.errors.InvalidArgumentError) and "parse" in message and "xample" in message:
        return f"a record has other features than the first one of its file ({first_line}); make the records again"
    if isinstance(error, _LOST_WORKER):
        return (
            f"a worker or device has stopped answering ({first_line}); start the same command on all workers again, "
            "and it goes on from the newest checkpoint"
        )
    if isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError) and "No such file" in message:
        return f"a file disappeared during the run ({first_line})"
    return None


def _damaged_record(files: Sequence[Path]) -> str | None:
    """Reads the files with their checksums until one is damaged; TensorFlow does not say which it was."""
    deadline = time.monotonic() + _SEARCH_SECONDS
    for file in files:
        try:
            for _ in read_records(file):
                if time.monotonic() > deadline:
                    return None
        except UserError as error:
            return str(error)
    return None


OUTSIDE_VOCABULARY = "a token id outside the vocabulary"  # the message of a failing batch begins so
