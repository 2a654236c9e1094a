import json

import checks
import numpy as np
import tensorflow as tf
from conftest import GOLDEN

from albert_tf.checkpoints.opening import load_model
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names


def test_metrics_over_batches_are_the_originals():
    directory = GOLDEN / "tf1_checkpoint" / "plain"
    model = load_model(directory)
    arrays, expected = (
        np.load(directory / "eval_batches.npz"),
        json.loads((directory / "eval_metrics.json").read_text()),
    )
    totals, losses = {}, []
    for index in range(3):
        batch = {name: tf.constant(arrays[name][index]) for name in arrays.files}
        batch["example_weights"] = tf.ones([batch["input_ids"].shape[0]])
        terms = pretraining_loss(model, batch, draw=None)
        for name, (value, weight) in terms.items():
            old = totals.get(name, (0.0, 0.0))
            totals[name] = (old[0] + float(value), old[1] + float(weight))
        losses.append(sum(float(s) / float(w) for n, (s, w) in terms.items() if n.endswith("_loss")))
    for name in ("masked_lm_accuracy", "masked_lm_loss", "sentence_order_accuracy", "sentence_order_loss"):
        assert abs(totals[name][0] / totals[name][1] - expected[name]) < 1e-5, name
    assert np.allclose(losses, expected["per_batch_total_loss"], atol=1e-5)


def test_rows_of_weight_zero_change_nothing():
    config = checks.tiny_config()
    model = AlbertWithHeads(config)
    batch = checks.random_batch(config, batch=4)
    padded = {name: tf.pad(t, [[0, 2]] + [[0, 0]] * (t.shape.rank - 1)) for name, t in batch.items()}
    uniform = tf.fill([config.vocab_size], -np.float32(np.log(config.vocab_size)))
    plain = pretraining_loss(model, batch, draw=None, unigram_log_probs=uniform)
    with_rows = pretraining_loss(model, padded, draw=None, unigram_log_probs=uniform)
    assert set(plain) == set(pretraining_metric_names(model.head_names, unigram=True))
    for name in plain:
        assert np.allclose(plain[name], with_rows[name], rtol=1e-5), name
    total, weight = plain["masked_lm_unigram_cross_entropy"]
    assert abs(float(total / weight) - np.log(config.vocab_size)) < 1e-5


def test_without_pairs_there_is_only_the_masked_token_loss():
    config = checks.tiny_config()
    model = AlbertWithHeads(config, heads=("masked_lm",))
    terms = pretraining_loss(model, checks.random_batch(config), draw=None)
    assert [name for name in terms if name.endswith("_loss")] == ["masked_lm_loss"]
