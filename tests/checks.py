"""Checks and small helpers that several test files use."""

import numpy as np
import numpy_albert
import tensorflow as tf

from albert_tf.architecture.config import AlbertConfig
from albert_tf.checkpoints.opening import open_checkpoint
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.text.tokenizer_files import Tokenizer, load_tokenizer

TINY = {
    "vocab_size": 90,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


def tiny_config(**changes) -> AlbertConfig:
    return AlbertConfig.from_dict({**TINY, **changes})


def randomize(model: AlbertWithHeads, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Sets every weight, biases and LayerNorms too, to a random value; returns the weights by TF1 name."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, variable in named_variables(model).items():
        weights[name] = rng.normal(1.0 if name.endswith("gamma") else 0.0, 0.15, variable.shape).astype(np.float32)
        variable.assign(weights[name])
    return weights


def read_weights(path) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint by TF1 name."""
    opened = open_checkpoint(path)
    return {name: opened.read(name) for name in opened.shapes}


def assert_same_checkpoints(one, other) -> None:
    """Checks that the last checkpoints of two runs hold the same bits: weights, slots, state."""
    expected, actual = (tf.train.load_checkpoint(tf.train.latest_checkpoint(path)) for path in (one, other))
    names = [name for name in expected.get_variable_to_shape_map() if not name.startswith("_")]
    assert set(expected.get_variable_to_shape_map()) == set(actual.get_variable_to_shape_map())
    for name in names:
        value = expected.get_tensor(name)
        assert np.array_equal(value, actual.get_tensor(name), equal_nan=value.dtype.kind == "f"), name


def random_batch(config: AlbertConfig, *, batch: int = 4, length: int = 12, predictions: int = 3, seed: int = 0):
    """Returns a batch of the record contract, as tensors, in which rows are padded differently."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, length + 1, batch)
    mask = (np.arange(length)[None] < lengths[:, None]).astype(np.int32)
    arrays = {
        "input_ids": rng.integers(5, config.vocab_size, (batch, length)) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length)[None] >= 4).astype(np.int32) * mask,
        "masked_lm_positions": np.sort(rng.integers(1, 5, (batch, predictions)), axis=1),
        "masked_lm_ids": rng.integers(5, config.vocab_size, (batch, predictions)),
        "next_sentence_labels": rng.integers(0, 2, (batch, 1)),
    }
    tensors = {name: tf.constant(value, tf.int32) for name, value in arrays.items()}
    weights = np.ones((batch, predictions), np.float32)
    weights[rng.integers(0, batch), -1] = 0.0
    return {**tensors, "masked_lm_weights": tf.constant(weights), "example_weights": tf.ones([batch])}


def pretrain_settings(records, run, /, *, model: dict | None = None, **changes) -> dict:
    """Returns settings of a run of a tiny model into `run`, with its configuration written beside that."""
    shape = run.parent / "albert_config.json"
    tiny_config(vocab_size=600, **(model or {})).save(shape)
    settings = {
        "albert_config_file": str(shape), "input_file": f"{records}/train-*", "eval_input_file": f"{records}/eval-*",
        "output_dir": str(run), "train_batch_size": 8, "eval_batch_size": 16, "learning_rate": 0.01,
        "precision": "float32",
    }  # fmt: skip
    return {**settings, **changes}


def save_random_run(directory, vocabulary, **options):
    """Saves a run's directory of a tiny model with random weights; returns `directory`."""
    tokenizer = load_tokenizer(vocabulary)
    model = AlbertWithHeads(tiny_config(vocab_size=tokenizer.vocab_size), **options)
    randomize(model)
    save_run_directory(directory, model, tokenizer)
    return directory


def save_run_directory(directory, model: AlbertWithHeads, tokenizer: Tokenizer) -> None:
    """Writes what run_pretraining leaves: a checkpoint with its configuration and tokenizer."""
    model.config.save(directory / "albert_config.json")
    tokenizer.save(directory / "tokenizer")
    tf.train.Checkpoint(weights=named_variables(model)).write(str(directory / "model.ckpt-7"))


def oracle_outputs(config: AlbertConfig, weights: dict[str, np.ndarray], batch: dict[str, tf.Tensor]) -> dict:
    """Returns what the independent NumPy implementation computes."""
    return numpy_albert.forward(
        weights,
        {name: tensor.numpy() for name, tensor in batch.items()},
        num_layers=config.num_hidden_layers,
        num_groups=config.num_hidden_groups,
        inner_group_num=config.inner_group_num,
        heads=config.num_attention_heads,
        activation=config.hidden_act,
        mode=config.parameter_sharing,
    )
