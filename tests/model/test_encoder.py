import checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT

from albert_tf.architecture.config import AlbertConfig
from albert_tf.model.block import TransformerBlock
from albert_tf.model.dropout import Draw
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss

BASE = {**checks.TINY, "vocab_size": 30000, "embedding_size": 128, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512}  # fmt: skip


@pytest.mark.parametrize(("name", "count"), [("base", 11_683_584), ("large", 17_683_968)])
def test_encoders_have_the_originals_number_of_weights(name, count):
    assert AlbertEncoder(AlbertConfig.load(ROOT / "configs" / f"albert_{name}.json")).count_params() == count


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("xlarge", 58_724_864), ("xxlarge", 222_595_584)])
def test_large_encoders_have_the_originals_number_of_weights(name, count):
    assert AlbertEncoder(AlbertConfig.load(ROOT / "configs" / f"albert_{name}.json")).count_params() == count


@pytest.mark.parametrize(("mode", "millions"), [("attention", 63.65), ("ffn", 37.69), ("none", 89.65)])
def test_sharing_modes_have_the_papers_number_of_weights(mode, millions):
    encoder = AlbertEncoder(AlbertConfig.from_dict({**BASE, "parameter_sharing": mode}))
    assert round(encoder.count_params() / 1e6, 2) == millions


def test_sharing_all_calls_one_block_object_at_every_depth():
    encoder = AlbertEncoder(checks.tiny_config(num_hidden_layers=7))
    assert len(encoder.blocks) == 1 and isinstance(encoder.blocks[0], TransformerBlock)
    batch = checks.random_batch(encoder.config)
    assert len(encoder(batch)["encoder_layers"]) == 7


def test_the_number_of_variables_does_not_depend_on_the_depth():
    counts = {len(AlbertEncoder(checks.tiny_config(num_hidden_layers=n)).variables) for n in (1, 5, 12)}
    assert len(counts) == 1


def test_it_saves_and_loads_as_keras_and_fits(tmp_path):
    config = checks.tiny_config(hidden_dropout_prob=0.1, parameter_sharing="attention")
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: keras.Input([12], dtype="int32", name=name) for name in names}
    encoder = AlbertEncoder(config)
    model = keras.Model(inputs, keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))
    batch = checks.random_batch(config, batch=8)
    features, labels = {name: batch[name] for name in names}, batch["next_sentence_labels"][:, 0]
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(features, labels, epochs=15, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert np.allclose(loaded.predict(features, verbose=0), model.predict(features, verbose=0), atol=1e-6)


def test_inputs_of_any_length_share_one_graph():
    encoder = AlbertEncoder(checks.tiny_config())
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[dict.fromkeys(("input_ids", "input_mask", "segment_ids"), spec)])
    def run(batch):
        return encoder(batch)["pooled_output"]

    for length in (7, 12):
        batch = checks.random_batch(encoder.config, length=length)
        batch = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
        assert np.allclose(run(batch), encoder(batch)["pooled_output"], atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"parameter_sharing": "attention"}, {"parameter_sharing": "none"}], ids=str)
def test_compiled_training_has_the_outputs_and_gradients_of_the_plain_operations(changes):
    model = AlbertWithHeads(checks.tiny_config(**changes))
    checks.randomize(model)
    batch = checks.random_batch(model.config)
    results = []
    for training in (False, True):
        with tf.GradientTape() as tape:
            outputs = model(batch, training=training)
            loss = tf.reduce_mean(tf.square(outputs["masked_lm_logits"])) + tf.reduce_sum(outputs["pooled_output"])
        gradients = tape.gradient(loss, list(named_variables(model).values())[:-2])  # not those of the other head
        # Training computes the last block at [CLS] and the masked tokens alone.
        read = tf.pad(batch["masked_lm_positions"], [[0, 0], [1, 0]])
        last = outputs["sequence_output"]
        last = last if training else tf.gather(last, read, axis=1, batch_dims=1)
        results.append([last, *map(tf.convert_to_tensor, gradients)])
    for plain, compiled in zip(*results, strict=True):
        assert np.abs(plain - compiled).max() < 2e-5 * max(1.0, np.abs(plain).max())


def test_remat_gives_the_same_loss_and_gradients():
    results = []
    config = checks.tiny_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    batch = checks.random_batch(config)
    for remat in (False, True):
        model = AlbertWithHeads(config, remat=remat)
        checks.randomize(model)
        assert AlbertWithHeads.from_config(model.get_config()).encoder.remat == remat
        variables = list(named_variables(model).values())

        @tf.function
        def gradients(model=model, variables=variables):
            with tf.GradientTape() as tape:
                terms = pretraining_loss(model, batch, draw=Draw(3, 5, 0))
                loss = terms["masked_lm_loss"][0] + terms["sentence_order_loss"][0]
            return [loss, *map(tf.convert_to_tensor, tape.gradient(loss, variables))]

        results.append(gradients())
    assert float(results[0][0]) == float(results[1][0])
    for plain, again in zip(*results, strict=True):
        assert np.abs(plain - again).max() <= 1e-6 * max(1.0, np.abs(plain).max())
