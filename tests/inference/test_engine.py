import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.opening import load_model
from albert_tf.errors import UserError
from albert_tf.inference import engine as engine_module
from albert_tf.inference.engine import load_engine

TEXTS = ["Alice was beginning to get very tired.", "", "“Oh dear!” said the Rabbit, 2,500 times. " * 9, "Down, down."]


@pytest.fixture(scope="module")
def engine(run_directory):
    return load_engine(run_directory, precision="float32")


@pytest.fixture(scope="module")
def model(run_directory):
    return load_model(run_directory)


def expected_outputs(model, tokenizer, first, second=""):
    """Runs the Keras model on one input without padding; truncation takes tokens away one by one."""
    first, second = tokenizer.encode(first), tokenizer.encode(second)
    while len(first) + len(second) > model.config.max_position_embeddings - (3 if second else 2):
        (first if len(first) > len(second) else second).pop()
    tail = [*second, tokenizer.sep_id] if second else []
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id, *tail]
    segments = [0] * (len(first) + 2) + [1] * len(tail)
    batch = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [segments]}
    return model({name: tf.constant(value) for name, value in batch.items()})


def test_texts_are_embedded_in_their_order(model, engine):
    tokenizer = engine.tokenizer
    texts = TEXTS * 3
    embeddings = engine.embed(texts)
    for text, embedding in zip(texts, embeddings, strict=True):
        expected = expected_outputs(model, tokenizer, text)["pooled_output"][0]
        assert np.abs(embedding - expected).max() < 1e-5


def test_pairs_are_answered_as_the_model_was_trained_on_them(model, engine):
    tokenizer = engine.tokenizer
    seconds = [TEXTS[2], TEXTS[0], "the Rabbit " * 20, ""]
    answers = engine.answer(engine.tokenize(TEXTS, seconds), output="sentence_order")
    for first, second, logits in zip(TEXTS, seconds, answers, strict=True):
        expected = expected_outputs(model, tokenizer, first, second)["sentence_order_logits"][0]
        assert np.abs(logits - expected).max() < 1e-5


def test_windows_do_not_change_the_answers(engine, monkeypatch):
    texts = [f"{text} {number}" for number in range(5) for text in TEXTS]
    whole = engine.embed(texts)
    monkeypatch.setattr(engine_module, "WINDOW", 7)
    assert np.abs(engine.embed(texts) - whole).max() < 1e-6
    assert engine.embed([]).shape == (0, 16)


def test_duplicates_are_answered_once(engine, monkeypatch):
    rows = []
    answer_batch = engine.answer_batch
    monkeypatch.setattr(engine, "answer_batch", lambda texts, **kw: rows.extend(texts) or answer_batch(texts, **kw))
    embeddings = engine.embed([*TEXTS, *TEXTS[::-1]])
    assert len(rows) == len(TEXTS)
    assert np.array_equal(embeddings, embeddings[::-1])


def test_long_texts_are_marked_as_cut(engine):
    cut = [text.was_cut for text in engine.tokenize(TEXTS)]
    assert cut == [False, False, True, False]
    assert max(len(text.ids) for text in engine.tokenize(TEXTS)) == 32


def test_an_answer_that_the_model_has_no_head_for_is_refused(engine, run_directory):
    assert engine.outputs == ("pooled_embedding", "mean_embedding", "cls_embedding", "sentence_order")
    with pytest.raises(UserError, match="cannot answer 'sequence_classification'; it can answer pooled_embedding, "):
        engine.embed(TEXTS, output="sequence_classification")
    with pytest.raises(UserError, match="from 8 to the model's 32; received 64"):
        load_engine(run_directory, max_seq_length=64)
