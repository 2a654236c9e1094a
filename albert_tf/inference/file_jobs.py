"""The command run_inference: rows of a file to answers in another, window by window, continued where it was stopped."""

import dataclasses
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf.architecture.weight_names import SENTENCE_ORDER, SEQUENCE_CLASSIFICATION
from albert_tf.errors import UserError
from albert_tf.files import require_writable
from albert_tf.inference.answer_files import NPY, Answer, AnswerFile
from albert_tf.inference.batching import WINDOW, read_ahead
from albert_tf.inference.engine import Engine, TokenizedText, load_engine
from albert_tf.inference.fast_graph import EMBEDDINGS
from albert_tf.saved_model.export_directory import version_directory
from albert_tf.settings.inference import InferenceConfig
from albert_tf.text.row_reader import Position, Row, RowReader


@dataclasses.dataclass(frozen=True)
class _Window:
    """Rows that are answered together; `texts` has None for those that are left out."""

    rows: list[Row]
    texts: list[TokenizedText | None]
    counts: dict[str, int]


def run_inference(config: InferenceConfig) -> None:
    """Answers the rows of a file; what an earlier run of the same command has written is kept."""
    if config.output.endswith(NPY) and config.answer not in EMBEDDINGS:
        raise UserError(f"a {NPY} file holds embeddings; write {config.answer} to a .jsonl or .tsv file")
    require_writable(config.output, flag="--output", is_file=True)
    output = AnswerFile(Path(config.output))
    try:
        reader = _open_input(config)
        model = config.checkpoint or str(version_directory(Path(config.saved_model_dir or "")))
        engine = load_engine(
            model, precision=config.precision, max_seq_length=config.max_seq_length, label_head=config.label_head
        )
        if config.answer not in engine.outputs:
            raise UserError(f"--answer={config.answer}: {model} cannot give it; it gives {', '.join(engine.outputs)}")
        _Inference(config, reader=reader, engine=engine).write(output)
        output.finish()
    finally:
        output.close()


def _open_input(config: InferenceConfig) -> RowReader:
    try:
        return RowReader(
            Path(config.input),
            row_format=config.input_format,
            text_column=config.text_column,
            pair_column=config.pair_column,
        )
    except UserError as error:
        raise UserError(f"--input={config.input}: {error}") from None


class _Inference:
    """One run of the command."""

    def __init__(self, config: InferenceConfig, *, reader: RowReader, engine: Engine) -> None:
        self._config, self._reader, self._engine = config, reader, engine

    def write(self, output: AnswerFile) -> None:
        """Writes all answers that are not written yet."""
        output.begin(self._settings())
        progress = output.progress
        counts = {"answered": 0, "bad": 0, "long": 0, **(progress["counts"] if progress else {})}
        start = Position(*progress["position"]) if progress else None
        if progress:
            logging.info("Continuing %s behind line %d", self._config.input, start.line if start else 0)
        began, before = time.monotonic(), counts["answered"]
        with tqdm(total=self._reader.size_bytes, initial=start.offset if start else 0, unit="B", unit_scale=True,
                  desc="Answering", mininterval=1.0) as bar:  # fmt: skip
            for window in read_ahead(self._windows(start)):
                output.write(self._answer(window))
                counts = {name: counts[name] + window.counts[name] for name in counts}
                end = window.rows[-1].end
                output.commit(position=dataclasses.astuple(end), counts=counts)
                bar.update(end.offset - bar.n)
                bar.set_postfix_str(f"{(counts['answered'] - before) / (time.monotonic() - began):,.1f} texts/s")
        if not counts["answered"]:
            output.discard()
            raise UserError(f"--input={self._config.input} holds no text that can be answered: {counts['bad']} bad and "
                            f"{counts['long']} long row(s) were left out")  # fmt: skip
        self._report(counts, answered_now=counts["answered"] - before, seconds=time.monotonic() - began)

    def _windows(self, start: Position | None) -> Iterator[_Window]:
        """Yields windows of rows with their tokens; runs in a thread."""
        rows = self._reader.rows(start)
        while window := list(itertools.islice(rows, WINDOW)):
            good = [row for row in window if not self._is_bad(row)]
            pairs = [row.pair for row in good] if self._config.pair_column else None
            tokenized = dict(zip((row.line for row in good), self._engine.tokenize([row.text for row in good], pairs),
                                 strict=True))  # fmt: skip
            long = [row for row in good if tokenized[row.line].was_cut]
            self._refuse_long(long)
            if self._config.long_texts == "skip":
                for row in long:
                    del tokenized[row.line]
            counts = {"answered": len(tokenized), "bad": len(window) - len(good), "long": len(long)}
            yield _Window(window, [tokenized.get(row.line) for row in window], counts)

    def _is_bad(self, row: Row) -> bool:
        if row.problem and self._config.bad_rows == "refuse":
            raise UserError(f"{self._reader.place(row.line)}: {row.problem}; --bad_rows=skip leaves such rows out")
        return row.problem is not None

    def _refuse_long(self, long: list[Row]) -> None:
        if long and self._config.long_texts == "refuse":
            raise UserError(
                f"{self._reader.place(long[0].line)}: the text is longer than {self._engine.max_seq_length} tokens; "
                "--long_texts=cut cuts the end of such texts, --long_texts=skip leaves them out"
            )

    def _answer(self, window: _Window) -> list[tuple[int, Answer | None]]:
        texts = [text for text in window.texts if text is not None]
        answers = iter(zip(texts, self._engine.answer(texts, output=self._config.answer), strict=True))
        return [
            (row.line, None if text is None else self._describe(*next(answers)))
            for row, text in zip(window.rows, window.texts, strict=True)
        ]

    def _describe(self, text: TokenizedText, answer: np.ndarray) -> Answer:
        """Returns what is written of an answer: embeddings as they are, labels and probabilities for logits."""
        name = self._config.answer
        if name in EMBEDDINGS:
            return {name: answer}
        probabilities = _softmax(answer)
        if name == SENTENCE_ORDER:
            return {"in_order_probability": probabilities[0]}
        labels = self._engine.labels or [str(number) for number in range(answer.shape[-1])]
        if name == SEQUENCE_CLASSIFICATION:
            if len(answer) == 1:
                return {"score": answer[0]}
            best = int(answer.argmax())
            by_label = dict(zip(labels, probabilities.tolist(), strict=True))
            return {"label": labels[best], "score": probabilities[best], "probabilities": by_label}
        tokenizer = self._engine.tokenizer
        places = [i for i, piece in enumerate(text.ids) if piece not in (tokenizer.cls_id, tokenizer.sep_id)]
        return {
            "tokens": tokenizer.pieces([text.ids[place] for place in places]),
            "labels": [labels[int(answer[place].argmax())] for place in places],
        }

    def _settings(self) -> dict[str, Any]:
        """Returns what the answers depend on, beside what may be changed for the rows that come."""
        config, status = self._config, os.stat(self._config.input)
        return {
            "model": self._engine.fingerprint,
            "--input": [os.path.abspath(config.input), status.st_size, status.st_mtime_ns],
            "--input_format": self._reader.format,
            "--text_column": config.text_column,
            "--pair_column": config.pair_column,
            "--answer": config.answer,
            "--max_seq_length": self._engine.max_seq_length,
        }

    def _report(self, counts: dict[str, int], *, answered_now: int, seconds: float) -> None:
        rate = answered_now / max(seconds, 1e-9)
        logging.info("%s: %d texts answered, %.1f a second", self._config.output, counts["answered"], rate)
        if counts["bad"]:
            logging.warning("Left out because they could not be read: %d row(s)", counts["bad"])
        if counts["long"]:
            done = "cut" if self._config.long_texts == "cut" else "left out"
            logging.warning("%d texts longer than %d tokens were %s", counts["long"], self._engine.max_seq_length, done)


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
