import re

import pytest

from albert_tf.records.manifest import Manifest
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep import dry_run


@pytest.fixture
def config(alice_text, alice_vocab, tmp_path):
    return RecordsConfig(
        input_file=str(alice_text),
        output_dir=str(tmp_path / "out"),
        spm_model_file=str(alice_vocab / "spiece.model"),
        document_mode="heading",
        sentence_split="prose",
        max_seq_length=32,
        dupe_factor=2,
        eval_fraction=0.3,
        num_shards=2,
        num_workers=2,
    )


def estimate_of(lines):
    """Returns the examples and gigabytes that the last line expects."""
    examples, gigabytes = re.search(r"alike: ([\d,]+) examples, ([\d.]+) GB", lines[-1]).groups()
    return int(examples.replace(",", "")), float(gigabytes)


def test_a_text_that_fits_the_sample_is_counted_exactly(config, alice_records):
    lines = dry_run.preview_records(config)
    assert "100.0%" in lines[0] and "2 process(es)" in lines[-1]
    assert estimate_of(lines)[0] == sum(shard.examples for shard in Manifest.load(alice_records).shards.values())


def test_a_longer_text_is_estimated_from_its_beginning(config, monkeypatch, tmp_path, alice_text):
    path = tmp_path / "long.txt"
    path.write_text(alice_text.read_text() * 20)
    config = RecordsConfig(**{**vars(config), "input_file": str(path)})
    whole, _ = estimate_of(dry_run.preview_records(config))
    monkeypatch.setattr(dry_run, "_SECONDS", 0.0)
    lines = dry_run.preview_records(config)
    assert "100.0%" not in lines[0]
    assert abs(estimate_of(lines)[0] / whole - 1) < 0.25
