"""What the export answers, in a session as in a server, against the Keras model and the Python tokenizer."""

import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN
from served_answers import (
    MAX_SEQ_LENGTH,
    batch_of,
    context_of,
    embeddings,
    encode,
    pack,
    pack_texts,
    question_outputs,
    span_probabilities,
)

from albert_tf.checkpoints.opening import load_model, open_checkpoint
from albert_tf.export.signatures import TOP_K, ServedModel

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
    expected = embeddings(model, tokenizer, pack_texts(tokenizer, [(text, "") for text in texts]))
    assert_close(session_model.run(name, {"text": np.array(texts)}), expected)
    for row, text in enumerate(texts):
        answer = session_model.run(name, {"text": np.array([text])})
        assert_close(answer, {output: value[row : row + 1] for output, value in expected.items()})


def test_pairs_are_cut_and_packed_as_by_the_original(session_model, model, tokenizer):
    first = [*NASTY[::12], *TEXTS, TEXTS[2], TEXTS[2], TEXTS[0]]
    second = [*NASTY[5::12][: len(NASTY[::12])], *TEXTS[::-1], TEXTS[2], "", TEXTS[2]]
    first, second = first[: len(second)], second[: len(first)]
    packed = pack_texts(tokenizer, zip(first, second, strict=True))
    inputs = {"text": np.array(first), "text_pair": np.array(second)}
    assert_close(session_model.run("serving_pair", inputs), embeddings(model, tokenizer, packed))
    logits = model.sentence_order(tf.constant(encode(model, packed)["pooled_output"])).numpy()
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
        order = tf.nn.log_softmax(answers["sentence_order_logits"])
        assert np.abs(order - golden["outputs"]["sentence_order_log_probs"]).max() < 2e-5


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
        sequence = tf.constant(encode(model, [(packed, segments)])["sequence_output"])
        table = model.encoder.embeddings.word_embeddings
        logits = model.masked_lm(tf.gather(sequence, positions, axis=1), table)[0]
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
        "tokens": ({"input_ids", "segment_ids", "lengths"}, embeddings | {"sentence_order_logits"}),
        "mlm": (text, {"num_masks", "top_ids", "top_pieces", "top_scores"}),
        "sop": (pair, {"in_order_probability", "logits"}),
        "tokenize": (text, {"input_ids", "lengths", "pieces", "starts", "ends", "normalized_text"}),
    }
    found = {name: (set(s.inputs), set(s.outputs)) for name, s in session_model.signatures.items()}
    assert found == expected


def test_tokens_are_told_with_their_places_in_the_normalised_text(session_model, tokenizer):
    texts = [text for text in NASTY[::5] if tokenizer.encode(text)] + TEXTS
    answers = session_model.run("tokenize", {"text": np.array(texts)})
    for row, text in enumerate(texts):
        ids, _ = pack(tokenizer, tokenizer.encode(text))
        length = len(ids)
        assert answers["lengths"][row] == length
        assert answers["input_ids"][row, :length].tolist() == ids
        assert set(answers["input_ids"][row, length:].tolist()) <= {tokenizer.pad_id}
        pieces = [piece.decode() for piece in answers["pieces"][row, :length]]
        assert pieces == tokenizer.pieces(ids)
        normalized = answers["normalized_text"][row].decode()
        for token in range(1, length - 1):
            start, end = answers["starts"][row, token], answers["ends"][row, token]
            if ids[token] != tokenizer.unk_id and normalized.isascii():
                assert normalized[start:end] == pieces[token].removeprefix("▁")
        spans = np.stack([answers["starts"][row, 1 : length - 1], answers["ends"][row, 1 : length - 1]], axis=1)
        assert np.all(np.diff(spans.reshape(-1)) >= 0)


def test_what_tokenize_returns_is_what_tokens_takes(session_model):
    told = session_model.run("tokenize", {"text": np.array(TEXTS)})
    inputs = {name: told[name] for name in ("input_ids", "lengths")}
    answers = session_model.run("tokens", {**inputs, "segment_ids": np.zeros_like(told["input_ids"])})
    del answers["sentence_order_logits"]
    assert_close(answers, session_model.run("embeddings", {"text": np.array(TEXTS)}))


# Fine-tuned models: golden checkpoints of 300 pieces with a tokenizer of as many.

LABELS = [f"label {i}" for i in range(9)]
PAIRS = [("Who was tired?", "Alice was beginning to get very tired."), ("a", "b c"), ("Alice", ""), ("", "")]


def signatures_of(case, tokenizer, **options):
    """Returns the Keras model of a golden checkpoint and its signatures."""
    model = load_model(GOLDEN / case, **options)
    labels = LABELS[: model.num_labels or 0]
    return model, ServedModel(model, tokenizer, max_seq_length=MAX_SEQ_LENGTH, labels=labels).signatures()


def asked(signature, pairs):
    """Runs a signature on pairs of texts; returns arrays."""
    inputs = {"text": tf.constant([pair[0] for pair in pairs])}
    if len(pairs[0]) > 1:
        inputs["text_pair"] = tf.constant([pair[1] for pair in pairs])
    return {name: value.numpy() for name, value in signature(**inputs).items()}


def test_a_classifier_answers_with_the_name_of_the_label(small_tokenizer):
    model, signatures = signatures_of("hf/sequence_classification", small_tokenizer)
    logits = model(batch_of(pack_texts(small_tokenizer, PAIRS)))["sequence_classification_logits"].numpy()
    answers = asked(signatures["serving_pair"], PAIRS)
    assert np.abs(answers["logits"] - logits).max() < 1e-5
    assert np.abs(answers["probabilities"] - tf.nn.softmax(logits)).max() < 1e-5
    assert [label.decode() for label in answers["label"]] == [LABELS[i] for i in logits.argmax(1)]
    assert np.abs(answers["score"] - answers["probabilities"].max(1)).max() < 1e-6
    alone = asked(signatures["serving_default"], [(first,) for first, _ in PAIRS])
    assert np.abs(alone["logits"][2:] - logits[2:]).max() < 1e-5
    assert set(asked(signatures["embeddings"], [("Alice",)])) == {"pooled_embedding", "mean_embedding", "cls_embedding"}


def test_tokens_are_labelled_where_they_stand(small_tokenizer):
    model, signatures = signatures_of("hf/token_classification", small_tokenizer)
    texts = [(second,) for _, second in PAIRS]
    packed = pack_texts(small_tokenizer, [(text, "") for (text,) in texts])
    logits = model(batch_of(packed))["token_classification_logits"].numpy()
    answers = asked(signatures["serving_default"], texts)
    for row, (text,) in enumerate(texts):
        inside = range(1, len(small_tokenizer.encode(text)) + 1)
        expected = [LABELS[logits[row, i].argmax()] for i in inside]
        labels = [label.decode() for label in answers["labels"][row]]
        assert labels == ["", *expected, *[""] * (len(labels) - 1 - len(expected))]
        scores = tf.nn.softmax(logits[row]).numpy().max(1)
        assert np.abs(answers["scores"][row, list(inside)] - scores[list(inside)]).max(initial=0) < 1e-5
        words = [answers["normalized_text"][row].decode()[a:b] for a, b in
                 zip(answers["starts"][row], answers["ends"][row], strict=True)]  # fmt: skip
        assert "".join(words) == text.lower().replace(" ", "")
    assert "pooled_embedding" not in signatures["embeddings"].structured_outputs  # it has no pooler
    assert "serving_pair" not in signatures


def test_one_of_several_texts_is_chosen(small_tokenizer):
    model, signatures = signatures_of("hf/multiple_choice", small_tokenizer)
    choices = ["was tired", "ran", "", "said “Oh dear!”"]
    pairs = [(text, choice) for text in ("Alice", "The Rabbit") for choice in choices]
    batch = batch_of(pack_texts(small_tokenizer, pairs))
    batch = {name: tf.reshape(value, [2, 4, -1]) for name, value in batch.items()}
    logits = model(batch)["multiple_choice_logits"].numpy()
    answers = signatures["serving_default"](
        text=tf.constant(["Alice", "The Rabbit"]), text_pair=tf.constant([choices] * 2)
    )
    assert np.abs(answers["logits"] - logits).max() < 1e-5
    assert answers["choice"].numpy().tolist() == logits.argmax(1).tolist()
    empty = signatures["serving_default"](text=tf.constant([], tf.string), text_pair=tf.zeros([0, 4], tf.string))
    assert empty["probabilities"].shape == (0, 4)


@pytest.mark.parametrize("case", ["hf/question_answering", "finetune_heads/squad_v2"])
def test_questions_are_answered_from_the_context(small_tokenizer, case):
    model, signatures = signatures_of(case, small_tokenizer)
    packed = pack_texts(small_tokenizer, PAIRS)
    context, outputs = context_of(small_tokenizer, packed), question_outputs(model, small_tokenizer, packed)
    answers = asked(signatures["serving_default"], PAIRS)
    for row, (_, text) in enumerate(PAIRS):
        if not text:
            assert (answers["answer"][row], answers["score"][row]) == (b"", 0.0)
            continue
        spans = span_probabilities(outputs, row, context[row])
        first, last = max(spans, key=spans.get)
        pieces = small_tokenizer.pieces(packed[row][0][first : last + 1])
        answer = answers["answer"][row].decode()
        assert answer == "".join(pieces).replace("▁", " ").strip()
        assert abs(answers["score"][row] - spans[first, last]) < 1e-5
        told = answers["normalized_text_pair"][row].decode()
        assert told[answers["answer_start"][row] : answers["answer_end"][row]] == answer
    if case.endswith("v2"):
        expected = tf.sigmoid(outputs["answer_class_logits"]).numpy()
        assert np.abs(answers["no_answer_probability"] - expected).max() < 1e-5
