import collections
import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.pretraining.batches import evaluation_dataset, open_records, training_dataset
from albert_tf.records.framing import read_records
from albert_tf.records.manifest import RecordsDirectory
from albert_tf.records.masking import token_boundaries
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep.pretraining_records import create_records
from albert_tf_data_prep.record_statistics import count_examples, summarize

BATCH = 8
LENGTHS = {"max_seq_length": None, "max_predictions_per_seq": None, "vocab_size": 600}


@pytest.fixture(scope="module")
def config(alice_text, alice_vocab, tmp_path_factory):
    return RecordsConfig(
        input_file=str(alice_text),
        output_dir=str(tmp_path_factory.mktemp("dynamic")),
        spm_model_file=str(alice_vocab / "spiece.model"),
        document_mode="heading",
        sentence_split="prose",
        max_seq_length=64,
        dupe_factor=2,
        eval_fraction=0.3,
        num_shards=2,
        num_workers=1,
        masking="dynamic",
    )


def open_directory(config, pattern="train-*"):
    create_records(config)
    files = sorted(Path(config.output_dir).glob(pattern))
    return open_records(files, directory=RecordsDirectory.of_files(files), **LENGTHS)


@pytest.fixture(scope="module")
def records(config):
    return open_directory(config)


def batches(records, *, steps, start_step=0, seed=3):
    dataset = training_dataset(records, batch_size=BATCH, seed=seed, start_step=start_step, rows=slice(None))
    return [{name: t.numpy() for name, t in batch.items()} for batch in itertools.islice(dataset, steps)]


def originals(batch):
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids


def test_records_hold_no_masks_and_batches_do(config, records):
    features = tf.train.Example.FromString(next(read_records(records.files[0]))).features.feature
    assert set(features) == {"input_ids", "input_mask", "segment_ids", "token_boundary", "next_sentence_labels"}
    batch = batches(records, steps=1)[0]
    assert batch["masked_lm_positions"].shape == (BATCH, config.predictions_per_seq)
    assert (batch["input_ids"] == 4).any() and batch["input_ids"].dtype == np.int32


def test_workers_see_the_masks_of_their_rows(records):
    half = BATCH // 2
    dataset = training_dataset(records, batch_size=BATCH, seed=3, start_step=0, rows=slice(half, BATCH))
    for whole, share in zip(batches(records, steps=3), dataset, strict=False):
        assert np.array_equal(whole["input_ids"][half:], share["input_ids"])
        assert np.array_equal(whole["masked_lm_positions"][half:], share["masked_lm_positions"])


def test_every_epoch_masks_the_same_text_anew(records):
    epochs = 3
    steps = -(-epochs * records.num_examples // BATCH)
    text = {}
    for batch in batches(records, steps=steps):
        for row, original in enumerate(originals(batch)):
            text.setdefault(original.tobytes(), set()).add(batch["input_ids"][row].tobytes())
    assert len(text) <= records.num_examples
    assert np.mean([len(versions) for versions in text.values()]) > epochs - 0.2


@pytest.mark.parametrize("start_step", [1, 7, 100])
def test_a_resumed_run_sees_the_masks_of_an_uninterrupted_one(records, start_step):
    whole = batches(records, steps=start_step + 3)[start_step:]
    for expected, batch in zip(whole, batches(records, steps=3, start_step=start_step), strict=True):
        assert all(np.array_equal(expected[name], batch[name]) for name in expected)


def test_evaluation_masks_the_same_tokens_every_time(config, records):
    held_out = open_directory(config, "eval-*")
    first, second = (
        [b["input_ids"].numpy() for b in evaluation_dataset(held_out, batch_size=5, max_steps=None, rows=slice(None))]
        for _ in range(2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    larger = np.concatenate(
        [b["input_ids"] for b in evaluation_dataset(held_out, batch_size=16, max_steps=None, rows=slice(None))]
    )
    count = held_out.num_examples
    assert np.array_equal(np.concatenate(first)[:count], larger[:count]), "the batch size changes the masks"


def test_statistics_are_those_of_static_masks(config, records, tmp_path):
    static = create_records(dataclasses.replace(config, masking="static", output_dir=str(tmp_path), dupe_factor=10))
    steps = 3 * records.num_examples // BATCH
    tokenizer = records.masking._tokenizer
    counts = collections.Counter()
    for batch in batches(records, steps=steps):
        boundaries = {"token_boundary": token_boundaries(originals(batch), tokenizer)}
        counts.update(count_examples({**batch, **boundaries}, mask_id=tokenizer.mask_id))
    drawn, expected = summarize(counts), static.statistics["train"]
    assert abs(drawn["masked_share"] - expected["masked_share"]) < 0.003
    for name in ("replacement_shares", "masked_run_shares"):
        for key, share in expected[name].items():
            assert abs(drawn[name][key] - share) < 0.02, (name, key)
