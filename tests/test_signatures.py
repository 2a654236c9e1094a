"""What the export answers, in a session as in a server, against the Keras model and the Python tokenizer."""

import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.loading import load_model, open_checkpoint
from albert_tf.signatures import TOP_K

MAX_SEQ_LENGTH = 64  # positions of the golden model
NASTY = [
    json.loads(line)["text"]
    for line in (GOLDEN / "tokenization" / "sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
]
TEXTS = ["Alice was beginning to get very tired.", "", "“Oh dear!” said the Rabbit, 2,500 times; Été. " * 20]


@pytest.fixture(scope="module")
def model(served_checkpoint):
    return load_model(served_checkpoint)


@pytest.fixture(scope="module")
def tokenizer(served_checkpoint):
    return open_checkpoint(served_checkpoint).load_tokenizer()


def pack(tokenizer, first, second=()):
    """Returns ids and segment ids of one example, cut as the original cuts."""
    first, second = list(first), list(second)
    while len(first) + len(second) > MAX_SEQ_LENGTH - (3 if second else 2):
        (first if len(first) > len(second) else second).pop()
    tail = [*second, tokenizer.sep_id] if second else []
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id, *tail]
    return ids, [0] * (len(first) + 2) + [1] * len(tail)


def encode(model, packed):
    """Runs the Keras model on examples; returns sequence_output and pooled_output."""
    length = max(len(ids) for ids, _ in packed)
    names = {"input_ids": 0, "segment_ids": 1}
    batch = {name: [row[part] + [0] * (length - len(row[part])) for row in packed] for name, part in names.items()}
    batch["input_mask"] = [[1] * len(ids) + [0] * (length - len(ids)) for ids, _ in packed]
    outputs = model.encoder({name: tf.constant(value, tf.int32) for name, value in batch.items()})
    return outputs["sequence_output"].numpy(), outputs["pooled_output"].numpy()


def expected_embeddings(model, tokenizer, packed):
    sequences, pooled = encode(model, packed)
    means = []
    for (ids, _), sequence in zip(packed, sequences, strict=True):
        inside = [i for i, piece in enumerate(ids) if piece not in (tokenizer.cls_id, tokenizer.sep_id)]
        means.append(sequence[inside].mean(0) if inside else np.zeros(sequence.shape[1]))
    return {"pooled_embedding": pooled, "mean_embedding": np.stack(means), "cls_embedding": sequences[:, 0]}


def assert_close(answers, expected):
    assert set(answers) == set(expected)
    for name, value in expected.items():
        assert answers[name].dtype == np.float32
        assert answers[name].shape == value.shape
        assert np.abs(answers[name] - value).max(initial=0.0) < 1e-5, name


@pytest.mark.parametrize("name", ["serving_default", "embeddings"])
def test_nasty_texts_are_embedded_as_by_the_keras_model_in_a_batch_and_one_by_one(
    session_model, model, tokenizer, name
):
    texts = NASTY + TEXTS
    expected = expected_embeddings(model, tokenizer, [pack(tokenizer, tokenizer.encode(text)) for text in texts])
    assert_close(session_model.run(name, {"text": np.array(texts)}), expected)
    for row, text in enumerate(texts):
        answer = session_model.run(name, {"text": np.array([text])})
        assert_close(answer, {output: value[row : row + 1] for output, value in expected.items()})


def test_pairs_are_cut_and_packed_as_by_the_original(session_model, model, tokenizer):
    first = [*NASTY[::12], *TEXTS, TEXTS[2], TEXTS[2], TEXTS[0]]
    second = [*NASTY[5::12][: len(NASTY[::12])], *TEXTS[::-1], TEXTS[2], "", TEXTS[2]]
    first, second = first[: len(second)], second[: len(first)]
    packed = [pack(tokenizer, tokenizer.encode(a), tokenizer.encode(b)) for a, b in zip(first, second, strict=True)]
    inputs = {"text": np.array(first), "text_pair": np.array(second)}
    assert_close(session_model.run("serving_pair", inputs), expected_embeddings(model, tokenizer, packed))
    logits = model.sentence_order(tf.constant(encode(model, packed)[1])).numpy()
    expected = {"logits": logits, "in_order_probability": tf.nn.softmax(logits).numpy()[:, 0]}
    assert_close(session_model.run("sop", inputs), expected)


def test_token_ids_give_the_golden_outputs_whatever_fills_the_padding(session_model):
    golden = {
        name: np.load(GOLDEN / "tf1_checkpoint" / "groups2_slots" / f"{name}.npz") for name in ("inputs", "outputs")
    }
    mask = golden["inputs"]["input_mask"]
    inputs = {name: golden["inputs"][name].astype(np.int32) for name in ("input_ids", "segment_ids")}
    assert mask.min() == 0
    for filling in (0, 2):  # a server that batches fills up with the first id of the batch
        inputs["input_ids"] = np.where(mask > 0, inputs["input_ids"], filling).astype(np.int32)
        answers = session_model.run("tokens", {**inputs, "lengths": mask.sum(1).astype(np.int32)})
        assert np.abs(answers["pooled_embedding"] - golden["outputs"]["pooled_output"]).max() < 2e-5
        assert np.abs(answers["cls_embedding"] - golden["outputs"]["sequence_output"][:, 0]).max() < 2e-5


def test_too_many_token_ids_are_refused_with_the_limit(session_model):
    ids = np.full((1, MAX_SEQ_LENGTH + 1), 7, np.int32)
    inputs = {"input_ids": ids, "segment_ids": 0 * ids, "lengths": np.array([5], np.int32)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="may not be longer than 64 tokens"):
        session_model.run("tokens", inputs)


def test_masks_are_filled_in_as_by_the_keras_model(session_model, model, tokenizer):
    mask, dot = tokenizer.mask_id, tokenizer.vocabulary.index(".")
    texts = ["Alice was [MASK] to get [MASK].", "no mask", "[MASK]", ""]
    ids = [
        [*tokenizer.encode("Alice was"), mask, *tokenizer.encode("to get"), mask, dot],
        tokenizer.encode("no mask"),
        [mask],
        [],
    ]
    answers = session_model.run("mlm", {"text": np.array(texts)})
    assert answers["num_masks"].tolist() == [2, 0, 1, 0]
    assert answers["top_ids"].shape == (4, 2, TOP_K)
    for row, tokens in enumerate(ids):
        packed, segments = pack(tokenizer, tokens)
        positions = [i for i, token in enumerate(packed) if token == mask]
        assert np.all(answers["top_scores"][row, len(positions) :] == 0.0)
        if not positions:
            continue
        sequence = tf.constant(encode(model, [(packed, segments)])[0])
        table = model.encoder.embeddings.word_embeddings
        logits = model.masked_lm(sequence, tf.constant([positions]), table)[0]
        probabilities = tf.nn.softmax(logits).numpy()
        expected = -np.sort(-probabilities)[:, :TOP_K]
        scores = answers["top_scores"][row, : len(positions)]
        assert np.abs(scores - expected).max() < 1e-5
        found = answers["top_ids"][row, : len(positions)]
        assert np.abs(np.take_along_axis(probabilities, found, axis=1) - scores).max() < 1e-5
        pieces = [[piece.decode() for piece in best] for best in answers["top_pieces"][row, : len(positions)]]
        assert pieces == [tokenizer.pieces(best) for best in found]


def test_an_empty_batch_has_an_empty_answer(session_model):
    none = np.array([], dtype=object)
    ids = np.zeros((0, 5), np.int32)
    inputs = {"text": none, "text_pair": none, "input_ids": ids, "segment_ids": ids, "lengths": np.zeros(0, np.int32)}
    for name, signature in session_model.signatures.items():
        answers = session_model.run(name, {key: inputs[key] for key in signature.inputs})
        assert {value.shape[0] for value in answers.values()} == {0}, name


def test_names_and_types_are_as_promised(session_model):
    text, pair = {"text"}, {"text", "text_pair"}
    embeddings = {"pooled_embedding", "mean_embedding", "cls_embedding"}
    expected = {
        "serving_default": (text, embeddings),
        "serving_pair": (pair, embeddings),
        "embeddings": (text, embeddings),
        "tokens": ({"input_ids", "segment_ids", "lengths"}, embeddings),
        "mlm": (text, {"num_masks", "top_ids", "top_pieces", "top_scores"}),
        "sop": (pair, {"in_order_probability", "logits"}),
    }
    found = {name: (set(s.inputs), set(s.outputs)) for name, s in session_model.signatures.items()}
    assert found == expected
