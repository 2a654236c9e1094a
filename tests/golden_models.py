"""Compares a model with the golden arrays of its checkpoint: every output, the loss, and every gradient there is.

Losses are written out here as the makers of the arrays define them (tests/data/README.md).
"""

import numpy as np
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss

TF1_PRETRAINING = ("tf1_checkpoint/plain", "tf1_checkpoint/groups2_slots")
TF1_FINETUNED = tuple(f"finetune_heads/{name}" for name in ("classifier_mnli", "race", "squad_v1", "squad_v2"))
HUGGING_FACE = tuple(
    f"hf/{name}"
    for name in (
        "pretraining",
        "sequence_classification",
        "question_answering",
        "token_classification",
        "multiple_choice",
    )
)
LABEL_HEADS = {"finetune_heads/race": "multiple_choice"}  # which TF1 does not say


def check(model, case, *, gradients=True):
    """Asserts that `model` gives the arrays of the golden directory `case`, within its tolerances."""
    family = case.split("/")[0]
    arrays = {name: dict(np.load(GOLDEN / case / f"{name}.npz")) for name in ("inputs", "outputs")}
    {"tf1_checkpoint": _check_pretraining, "finetune_heads": _check_finetuned, "hf": _check_hugging_face}[family](
        model, case, arrays["inputs"], arrays["outputs"], gradients
    )


def _close(actual, expected, tolerance, what):
    actual = np.asarray(actual)
    assert actual.shape == expected.shape, what
    assert np.abs(actual - expected).max() < tolerance, what


def _check_gradients(tape, loss, model, case, tolerance):
    variables = named_variables(model)
    expected = dict(np.load(GOLDEN / case / "gradients.npz"))
    gradients = tape.gradient(loss, list(variables.values()))
    ours = {name: g for name, g in zip(variables, gradients, strict=True) if g is not None}
    assert set(ours) == set(expected)
    for name, gradient in ours.items():
        _close(tf.convert_to_tensor(gradient), expected[name], tolerance, name)


def _check_pretraining(model, case, inputs, expected, gradients):
    batch = {name: tf.constant(value) for name, value in inputs.items()}
    batch["example_weights"] = tf.ones([len(inputs["input_ids"])])
    outputs = model(batch)
    _close(outputs["embedding_output"], expected["embedding_output"], 5e-6, "embedding_output")
    layers = sorted(name for name in expected if name.startswith("encoder_layer_"))
    assert len(layers) == len(outputs["encoder_layers"]) == 4
    for name, output in zip(layers, outputs["encoder_layers"], strict=True):
        _close(output, expected[name], 2e-5, name)
    for name in ("sequence_output", "pooled_output"):
        _close(outputs[name], expected[name], 2e-5, name)
    masked = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy().reshape(expected["masked_lm_log_probs"].shape)
    _close(masked, expected["masked_lm_log_probs"], 2e-5, "masked_lm_log_probs")
    order = tf.nn.log_softmax(outputs["sentence_order_logits"])
    _close(order, expected["sentence_order_log_probs"], 2e-5, "sentence_order_log_probs")
    if not gradients:
        return
    with tf.GradientTape() as tape:
        terms = pretraining_loss(model, batch, draw=None)
        losses = {name: terms[name][0] / terms[name][1] for name in ("masked_lm_loss", "sentence_order_loss")}
        total = losses["masked_lm_loss"] + losses["sentence_order_loss"]
    for name, value in [*losses.items(), ("total_loss", total)]:
        assert abs(float(value) - float(expected[name])) < 1e-5, name
    _check_gradients(tape, total, model, case, 2e-5)


def _cross_entropy(logits, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _check_finetuned(model, case, inputs, expected, gradients):
    batch = {name: tf.constant(value) for name, value in inputs.items()}
    start_positions = batch.pop("start_positions", None)
    outputs = model(batch)
    if case.endswith(("mnli", "race")):
        logits = outputs["multiple_choice_logits" if case.endswith("race") else "sequence_classification_logits"]
        _close(logits, expected["logits"], 2e-5, "logits")
        _close(tf.nn.softmax(logits), expected["probabilities"], 2e-5, "probabilities")
        assert np.array_equal(np.argmax(logits, -1), expected["predictions"])
        _close(_cross_entropy(logits, batch["label_ids"]), expected["per_example_loss"], 2e-5, "per_example_loss")
    elif case.endswith("squad_v1"):
        for name in ("start_logits", "end_logits"):
            _close(outputs[name], expected[name], 2e-5, name)
    else:
        for name in ("start_top_index", "end_top_index"):
            assert np.array_equal(outputs[name], expected[name]), name
        for name in ("start_top_log_probs", "end_top_log_probs"):
            _close(outputs[name], expected[name], 2e-5, name)
        _close(outputs["answer_class_logits"], expected["cls_logits"], 2e-5, "cls_logits")
    if not gradients:
        return
    with tf.GradientTape() as tape:
        loss = _finetuning_loss(model, case, batch, start_positions)
    assert abs(float(loss) - float(expected["loss" if "loss" in expected else "train_loss"])) < 2e-5
    _check_gradients(tape, loss, model, case, 5e-5)


def _finetuning_loss(model, case, batch, start_positions):
    if not case.endswith("squad_v2"):
        outputs = model(batch)
    else:
        outputs = model({**batch, "start_positions": start_positions})
    if "start_logits" not in outputs:
        logits = outputs["multiple_choice_logits" if case.endswith("race") else "sequence_classification_logits"]
        return tf.reduce_mean(_cross_entropy(logits, batch["label_ids"]))
    start = tf.reduce_mean(_cross_entropy(outputs["start_logits"], start_positions))
    end = tf.reduce_mean(_cross_entropy(outputs["end_logits"], batch["end_positions"]))
    if case.endswith("squad_v1"):
        return (start + end) / 2
    impossible = tf.cast(batch["is_impossible"], tf.float32)
    answer = tf.nn.sigmoid_cross_entropy_with_logits(labels=impossible, logits=outputs["answer_class_logits"])
    return 0.5 * (start + end) + 0.5 * tf.reduce_mean(answer)


def hugging_face_batch(inputs):
    """Returns Hugging Face inputs under the names of this project, with every position asked for."""
    ids = tf.constant(inputs["input_ids"], tf.int32)
    batch = {
        "input_ids": ids,
        "input_mask": tf.constant(inputs["attention_mask"], tf.int32),
        "segment_ids": tf.constant(inputs["token_type_ids"], tf.int32),
    }
    positions = tf.range(ids.shape[-1])[None] + tf.zeros([ids.shape[0], 1], tf.int32)
    return {**batch, "masked_lm_positions": positions}


def _check_hugging_face(model, case, inputs, expected, gradients):
    outputs = model(hugging_face_batch(inputs))
    _close(outputs["embedding_output"], expected["embedding_output"], 2e-5, "embedding_output")
    _close(np.stack(outputs["encoder_layers"]), expected["hidden_states"], 2e-5, "hidden_states")
    _close(outputs["sequence_output"], expected["last_hidden_state"], 2e-5, "last_hidden_state")
    if "pooler_output" in expected:
        _close(outputs["pooled_output"], expected["pooler_output"], 2e-5, "pooler_output")
    names = {"prediction_logits": "masked_lm_logits", "sop_logits": "sentence_order_logits"}
    compared = 0
    for name in expected:
        ours = f"{case.split('/')[1]}_logits" if name == "logits" else names.get(name, name)
        if name.endswith("logits"):
            _close(outputs[ours], expected[name], 2e-5, name)
            compared += 1
    assert compared
    labels = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
    losses = {
        "pretraining": lambda: (
            _mean_of_labelled(outputs["masked_lm_logits"], labels["labels"])
            + tf.reduce_mean(_cross_entropy(outputs["sentence_order_logits"], labels["sentence_order_label"]))
        ),
        "question_answering": lambda: (
            (
                tf.reduce_mean(_cross_entropy(outputs["start_logits"], labels["start_positions"]))
                + tf.reduce_mean(_cross_entropy(outputs["end_logits"], labels["end_positions"]))
            )
            / 2
        ),
    }
    kind = case.split("/")[1]
    loss = losses.get(kind, lambda: _mean_of_labelled(outputs[f"{kind}_logits"], labels["labels"]))()
    _close(loss, expected["loss"], 2e-5, "loss")


def _mean_of_labelled(logits, labels):
    kept = labels != -100
    return tf.reduce_mean(_cross_entropy(tf.boolean_mask(logits, kept), tf.boolean_mask(labels, kept)))
