"""Batch inference on a CPU: texts in any order and number in, embeddings or a head's answers in the same order out.

Texts are taken in windows. Within a window duplicates are answered once, and batches hold texts of nearly equal length
up to a number of tokens, padded to their own longest; the next window is tokenised meanwhile.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.architecture.weight_names import SENTENCE_ORDER, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from albert_tf.checkpoints.opening import Checkpoint, open_checkpoint, weights_fingerprint
from albert_tf.errors import UserError
from albert_tf.inference.batching import BATCH_TOKENS, WINDOW, plan_batches, read_ahead
from albert_tf.inference.fast_graph import EMBEDDINGS, POOLED, answer_function
from albert_tf.model.precision import resolve_precision
from albert_tf.saved_model.export_directory import LABELS_FILE, read_export_manifest
from albert_tf.saved_model.served_graph import load_saved_model
from albert_tf.settings.options import MIN_SEQ_LENGTH
from albert_tf.text.packing import join_ids, pad_rows
from albert_tf.text.tokenizer_files import Tokenizer, load_tokenizer

Answer = Callable[
    [np.ndarray, np.ndarray, np.ndarray], np.ndarray
]  # input_ids, segment_ids, lengths -> batch of answers


class TokenizedText(NamedTuple):
    """One text, or a pair, as the model reads it."""

    ids: tuple[int, ...]  # with the special tokens
    first_length: int  # tokens of segment 0, [CLS] and its [SEP] included
    was_cut: bool


class Engine:
    """A model that answers texts. `outputs` are the answers it can give, `labels` the classes of its label head."""

    def __init__(
        self,
        make_answer: Callable[[str], Answer],
        tokenizer: Tokenizer,
        *,
        outputs: Sequence[str],
        max_seq_length: int,
        fingerprint: str,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.outputs = tuple(outputs)
        self.fingerprint = fingerprint
        self.labels = labels
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self._make_answer = make_answer
        self._answers: dict[str, Answer] = {}

    def embed(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, output: str = POOLED
    ) -> np.ndarray:
        """Returns embeddings of texts, or of pairs of texts, float32 [texts, H]; long texts are cut at the end."""
        windows = [slice(start, start + WINDOW) for start in range(0, len(texts), WINDOW)]
        tokenized = (self.tokenize(texts[w], None if text_pairs is None else text_pairs[w]) for w in windows)
        answers = [np.stack(self.answer(window, output=output)) for window in read_ahead(tokenized)]
        return np.concatenate(answers) if answers else self.answer_batch([self._pack([], None)], output=output)[:0]

    def tokenize(self, texts: Sequence[str], text_pairs: Sequence[str | None] | None = None) -> list[TokenizedText]:
        """Returns the texts as the model reads them; a `text_pairs` entry that is None or "" makes no pair."""
        first = self.tokenizer.encode_batch(texts)
        if text_pairs is None:
            return [self._pack(ids, None) for ids in first]
        second = self.tokenizer.encode_batch([text or "" for text in text_pairs])
        return [self._pack(*pair) for pair in zip(first, second, strict=True)]

    def answer(self, texts: Sequence[TokenizedText], *, output: str) -> list[np.ndarray]:
        """Returns the answer of each text: a vector, or one vector for each token of token_classification."""
        places: dict[TokenizedText, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text, []).append(place)
        unique = sorted(places, key=lambda text: len(text.ids), reverse=True)
        answers: list[np.ndarray] = [np.empty(0)] * len(texts)
        for batch in plan_batches(np.array([len(text.ids) for text in unique]), max_tokens=BATCH_TOKENS):
            for text, answer in zip(unique[batch], self.answer_batch(unique[batch], output=output), strict=True):
                for place in places[text]:
                    answers[place] = answer[: len(text.ids)] if answer.ndim == 2 else answer
        return answers

    def answer_batch(self, texts: Sequence[TokenizedText], *, output: str) -> np.ndarray:
        """Answers texts in one batch, padded to the longest."""
        if output not in self._answers:
            if output not in self.outputs:
                raise UserError(f"this model cannot answer {output!r}; it can answer {', '.join(self.outputs)}")
            self._answers[output] = self._make_answer(output)
        rows = [(text.ids, text.first_length) for text in texts]
        return self._answers[output](*pad_rows(rows, pad_id=self.tokenizer.pad_id))

    def _pack(self, first: list[int], second: list[int] | None) -> TokenizedText:
        """Joins the ids of one text, or of two."""
        cls_id, sep_id = self.tokenizer.cls_id, self.tokenizer.sep_id
        ids, first_length = join_ids(first, second, cls_id=cls_id, sep_id=sep_id, max_seq_length=self.max_seq_length)
        given = len(first) + (len(second) + 3 if second else 2)
        return TokenizedText(tuple(ids), first_length, given > len(ids))


def load_engine(
    path: str | Path, *, precision: str = "auto", max_seq_length: int | None = None, label_head: str | None = None
) -> Engine:
    """Returns the engine of a checkpoint of any format, or of an export.

    `precision` is auto (bfloat16 where the processor computes with it), float32 or bfloat16, and an export's is its
    own; `max_seq_length` None means all positions that the model has.
    """
    if (Path(path) / "saved_model.pb").exists():
        return _load_export(Path(path), max_seq_length=max_seq_length)
    checkpoint = open_checkpoint(path, label_head=label_head)
    length = _checked_length(max_seq_length, limit=checkpoint.config.max_position_embeddings)
    dtype = tf.as_dtype(resolve_precision(precision, tf.distribute.get_strategy()))
    weights = {name.tf1_name: checkpoint.read(name.tf1_name) for name in checkpoint.names}
    config_digest = hashlib.sha256(json.dumps(checkpoint.config.to_dict(), sort_keys=True).encode()).hexdigest()
    fingerprint = f"{weights_fingerprint(sorted(weights.items()))} {config_digest} {dtype.name}"

    def make_answer(output: str) -> Answer:
        function = answer_function(weights, checkpoint.config, output=output, dtype=dtype)
        return lambda *inputs: function(*map(tf.constant, inputs)).numpy()

    tokenizer = checkpoint.load_tokenizer()
    return Engine(
        make_answer,
        tokenizer,
        outputs=_outputs_of(checkpoint),
        max_seq_length=length,
        fingerprint=f"{fingerprint} {tokenizer.fingerprint}",
        labels=checkpoint.labels,
    )


def _load_export(directory: Path, *, max_seq_length: int | None) -> Engine:
    manifest = read_export_manifest(directory)
    tokenizer = load_tokenizer(directory / "assets")
    model = load_saved_model(directory)
    heads = {SENTENCE_ORDER: "sentence_order_logits", SEQUENCE_CLASSIFICATION: "logits", TOKEN_CLASSIFICATION: "logits"}
    names = {name: name for name in EMBEDDINGS}
    names |= {head: name for head, name in heads.items() if head in manifest["heads"]}
    labels = directory / LABELS_FILE

    def make_answer(output: str) -> Answer:
        inputs = ("input_ids", "segment_ids", "lengths")
        return lambda *values: model.run("tokens", dict(zip(inputs, values, strict=True)))[names[output]]

    return Engine(
        make_answer,
        tokenizer,
        outputs=[output for output, name in names.items() if name in model.signatures["tokens"].outputs],
        max_seq_length=_checked_length(max_seq_length, limit=manifest["max_seq_length"]),
        fingerprint=f"{manifest['weights_fingerprint']} {manifest['precision']} {tokenizer.fingerprint}",
        labels=labels.read_text(encoding="utf-8").split("\n")[:-1] if labels.exists() else None,
    )


def _checked_length(max_seq_length: int | None, *, limit: int) -> int:
    if max_seq_length is not None and not MIN_SEQ_LENGTH <= max_seq_length <= limit:
        raise UserError(
            f"--max_seq_length must be from {MIN_SEQ_LENGTH} to the model's {limit}; received {max_seq_length}"
        )
    return max_seq_length or limit


def _outputs_of(checkpoint: Checkpoint) -> list[str]:
    embeddings = [name for name in EMBEDDINGS if name != POOLED or checkpoint.has_pooler]
    heads = [SENTENCE_ORDER, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION]
    return embeddings + [head for head in heads if head in checkpoint.heads]
