"""The exports of fine-tuned models, as a server loads them, against the Keras models: every signature, nasty texts."""

import json
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, ROOT
from served_answers import (
    batch_of,
    context_of,
    embeddings,
    normalized_text,
    pack_texts,
    question_outputs,
    span_probabilities,
)

from albert_tf.checkpoints.opening import build_model, open_checkpoint
from albert_tf.export.saved_model_writer import export_saved_model
from albert_tf.saved_model import session_loader
from albert_tf.text.tokenizer import TokenizerSettings

CASES = {
    "finetune_heads/classifier_mnli": None,
    "finetune_heads/race": "multiple_choice",
    "finetune_heads/squad_v1": None,
    "finetune_heads/squad_v2": None,
    "hf/sequence_classification": None,
    "hf/token_classification": None,
    "hf/multiple_choice": None,
    "hf/question_answering": None,
}
CHOICES = 3
TOLERANCE = 1e-5

# Neither Keras nor this project can be imported. Asks for all rows at once, then for each row alone.
ASK = """
import json, pickle, runpy, sys
import numpy as np
sys.modules["keras"] = sys.modules["albert_tf"] = None
program, directory, questions, answers = sys.argv[1:]
model = runpy.run_path(program)["SessionModel"](directory)
found = {}
for name, columns in json.load(open(questions)).items():
    types = {key: object if info.dtype == 7 else np.int32 for key, info in model.signatures[name].inputs.items()}
    columns = {key: np.array(values, types[key]) for key, values in columns.items()}
    rows = range(len(next(iter(columns.values()))))
    alone = [model.run(name, {key: value[i : i + 1] for key, value in columns.items()}) for i in rows]
    found[name] = [model.run(name, columns), alone]
found["signatures"] = sorted(model.signatures)
pickle.dump(found, open(answers, "wb"))
"""


@pytest.fixture(scope="module")
def texts():
    lines = (GOLDEN / "tokenization" / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
    places = [*ROOT.parent.glob("shared/data/nasty/*")]
    if not places:
        pytest.skip("needs ../shared/data/nasty")
    nasty = [line for place in places for line in place.read_bytes().decode("utf-8", "replace").split("\n")]
    return [json.loads(line)["text"] for line in lines] + nasty[::4]


def ask(directory, questions, tmp_path):
    """Returns, for each signature, the rows of the answers to all rows at once, and to each alone."""
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    command = [sys.executable, "-P", "-c", ASK, session_loader.__file__, str(directory)]
    files = [str(tmp_path / name) for name in ("questions.json", "answers.pickle")]
    process = subprocess.run([*command, *files], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    found = pickle.loads((tmp_path / "answers.pickle").read_bytes())
    assert found.pop("signatures") == sorted(questions)
    ways = {}
    for name, (together, alone) in found.items():
        rows = range(len(alone))
        batched = [{key: value[i] for key, value in together.items()} for i in rows]
        ways[name] = [batched, [{key: value[0] for key, value in answer.items()} for answer in alone]]
    return ways


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_signature_answers_nasty_texts_as_the_keras_model_in_a_batch_and_one_by_one(
    case, texts, small_tokenizer, tmp_path
):
    shutil.copytree(GOLDEN / case, tmp_path / "model")
    small_tokenizer.save(tmp_path / "model")
    checkpoint = open_checkpoint(tmp_path / "model", label_head=CASES[case])
    directory = export_saved_model(checkpoint, output_dir=tmp_path / "export", version=1)
    expected = Expected(checkpoint, small_tokenizer, texts)
    for name, ways in ask(directory, expected.questions(), tmp_path).items():
        for rows in ways:
            expected.check(name, rows)


class Expected:
    """The questions to an export, and the answers of the Keras model."""

    def __init__(self, checkpoint, tokenizer, texts):
        self.model = build_model(checkpoint)
        self.head = checkpoint.heads[0]
        self.labels = checkpoint.labels or [str(i) for i in range(checkpoint.num_labels or 0)]
        self.tokenizer = tokenizer
        # Changes nothing of normalised text: its spans are places in that.
        self.plain = type(tokenizer)(tokenizer.model, TokenizerSettings(lower_case=False, strip_accents=False))
        self.texts = texts
        self.seconds = [*texts[7:], *texts[:7]]
        self.choices = [[texts[(i * 5 + k) % len(texts)] for k in range(CHOICES)] for i in range(len(texts))]
        self.single = pack_texts(tokenizer, [(text, "") for text in texts])
        self.pairs = pack_texts(tokenizer, zip(texts, self.seconds, strict=True))

    def questions(self):
        single, batch = {"text": self.texts}, {k: v.numpy().tolist() for k, v in batch_of(self.pairs).items()}
        pair = {**single, "text_pair": self.seconds}
        ids = {name: batch[name] for name in ("input_ids", "segment_ids")}
        default = {"token_classification": single, "multiple_choice": {**single, "text_pair": self.choices},
                   "sequence_classification": single}.get(self.head, pair)  # fmt: skip
        questions = {"serving_default": default, "embeddings": single, "tokenize": single,
                     "tokens": {**ids, "lengths": [len(ids) for ids, _ in self.pairs]}}  # fmt: skip
        return {**questions, "serving_pair": pair} if self.head == "sequence_classification" else questions

    def check(self, name, rows):
        """Compares the rows of a signature's answer."""
        assert len(rows) == len(self.texts)
        if name in ("embeddings", "tokens"):
            packed = self.single if name == "embeddings" else self.pairs
            self._check_values(rows, {**embeddings(self.model, self.tokenizer, packed), **self._logits(name)})
        elif name == "tokenize":
            self._check_tokens(rows)
        elif self.head == "multiple_choice":
            self._check_choices(rows)
        elif self.head == "sequence_classification":
            self._check_classes(rows, self.single if name == "serving_default" else self.pairs)
        elif self.head == "token_classification":
            self._check_labels_of_tokens(rows)
        else:
            self._check_spans(rows)

    @staticmethod
    def _check_values(rows, expected):
        """Compares floating-point outputs; where answers are longer, the longer part is padding."""
        for row, answer in enumerate(rows):
            assert set(answer) == set(expected)
            for name, values in expected.items():
                value = values[row]
                found = answer[name][: len(value)] if value.ndim else answer[name]
                assert found.dtype == np.float32
                assert np.abs(found - value).max(initial=0.0) < TOLERANCE, (name, row)

    def _logits(self, name):
        """Returns the logits that stand beside the embeddings of token ids, without those of padding."""
        if name != "tokens" or self.head not in ("sequence_classification", "token_classification"):
            return {}
        logits = self.model(batch_of(self.pairs))[f"{self.head}_logits"].numpy()
        if self.head == "sequence_classification":
            return {"logits": logits}
        return {"logits": [row[: len(ids)] for row, (ids, _) in zip(logits, self.pairs, strict=True)]}

    def _check_classes(self, rows, packed):
        logits = self.model(batch_of(packed))["sequence_classification_logits"].numpy()
        probabilities = tf.nn.softmax(logits).numpy()
        names = [answer.pop("label").decode() for answer in rows]
        chosen = [values[self.labels.index(name)] for values, name in zip(logits, names, strict=True)]
        assert np.abs(chosen - logits.max(1)).max() < TOLERANCE
        self._check_values(rows, {"logits": logits, "probabilities": probabilities, "score": probabilities.max(1)})

    def _check_choices(self, rows):
        pairs = [(text, second) for text, row in zip(self.texts, self.choices, strict=True) for second in row]
        inputs = {k: tf.reshape(v, [-1, CHOICES, v.shape[1]]) for k, v in
                  batch_of(pack_texts(self.tokenizer, pairs)).items()}  # fmt: skip
        logits = self.model(inputs)["multiple_choice_logits"].numpy()
        chosen = logits[np.arange(len(rows)), [answer.pop("choice") for answer in rows]]
        assert np.abs(chosen - logits.max(1)).max() < TOLERANCE
        self._check_values(rows, {"logits": logits, "probabilities": tf.nn.softmax(logits).numpy()})

    def _check_tokens(self, rows):
        """Compares what `tokenize` tells with the Python tokenizer."""
        for answer, text, (ids, _) in zip(rows, self.texts, self.single, strict=True):
            length = len(ids)
            assert answer["lengths"] == length
            assert answer["input_ids"][:length].tolist() == ids
            assert not answer["input_ids"][length:].any()
            assert [piece.decode() for piece in answer["pieces"][:length]] == self.tokenizer.pieces(ids)
            normalized = answer["normalized_text"].decode()
            assert normalized == normalized_text(self.tokenizer, text)
            found = list(zip(answer["starts"].tolist(), answer["ends"].tolist(), strict=True))
            spans = self.plain.encode_with_offsets(normalized)[1][: length - 2]
            assert found == [(0, 0), *spans, *[(0, 0)] * (len(found) - 1 - len(spans))]

    def _check_labels_of_tokens(self, rows):
        logits = self.model(batch_of(self.single))["token_classification_logits"].numpy()
        probabilities = tf.nn.softmax(logits).numpy()
        self._check_tokens(rows)
        for row, answer in enumerate(rows):
            names, inside = [label.decode() for label in answer["labels"]], range(1, answer["lengths"] - 1)
            assert {name for place, name in enumerate(names) if place not in inside} <= {""}
            chosen = np.array([logits[row, i, self.labels.index(names[i])] for i in inside])
            assert np.abs(chosen - logits[row, inside].max(1)).max(initial=0.0) < TOLERANCE
            scores = np.zeros(len(names))
            scores[inside] = probabilities[row, inside].max(1)
            assert np.abs(answer["scores"] - scores).max() < TOLERANCE

    def _check_spans(self, rows):
        outputs = question_outputs(self.model, self.tokenizer, self.pairs)
        context = context_of(self.tokenizer, self.pairs)
        for row, answer in enumerate(rows):
            normalized = answer["normalized_text_pair"].decode()
            assert normalized == normalized_text(self.tokenizer, self.seconds[row])
            start, end = int(answer["answer_start"]), int(answer["answer_end"])
            assert answer["answer"].decode() == normalized[start:end]
            probabilities, inside = span_probabilities(outputs, row, context[row]), np.flatnonzero(context[row])
            if "answer_class_logits" in outputs:
                expected = tf.sigmoid(outputs["answer_class_logits"][row])
                assert abs(answer["no_answer_probability"] - expected) < TOLERANCE
            if not probabilities:
                assert (start, end, answer["score"]) == (0, 0, 0.0)
                continue
            best = max(probabilities.values())
            assert abs(answer["score"] - best) < TOLERANCE
            offsets = dict(zip(inside, self.plain.encode_with_offsets(normalized)[1], strict=False))
            as_good = [span for span, value in probabilities.items() if value > best - TOLERANCE]
            assert (start, end) in [(offsets[first][0], offsets[last][1]) for first, last in as_good]
