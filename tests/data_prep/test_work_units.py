import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.records.framing import read_records
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep import work_units
from albert_tf_data_prep.documents import Document
from albert_tf_data_prep.shard_writer import EVAL_SHARD, write_shard

SENTENCES = ["Alice was beginning to get very tired.", "She sat by her sister on the bank.", "It had no pictures."]


def make_config(**changes):
    settings = {"input_file": "unused", "output_dir": "", "spm_model_file": "unused", "max_seq_length": 32,
                "dupe_factor": 3, "num_shards": 2, "eval_fraction": 0.5}  # fmt: skip
    return RecordsConfig(**{**settings, **changes})


def run(tokenizer, tmp_path, documents, **changes):
    worker = work_units.UnitWorker(make_config(**changes), tokenizer, tmp_path)
    return worker.run(work_units.UnitTask(0, documents))


def test_a_unit_counts_what_it_did(english_tokenizer, tmp_path):
    documents = [Document(0, i, SENTENCES * 4) for i in range(40)] + [Document(0, 40, ["One sentence."])]
    result = run(english_tokenizer, tmp_path, documents)
    counts = result.counts
    assert counts["train/documents"] + counts["eval/documents"] == 41
    assert 8 < counts["eval/documents"] < 32
    assert counts["train/documents_of_one_sentence"] + counts["eval/documents_of_one_sentence"] == 1
    assert counts["train/tokens"] == result.token_counts.sum()
    written = [write_shard(tmp_path, tmp_path / f"s{i}", shard=i) for i in (0, 1, EVAL_SHARD)]
    assert written[0] + written[1] == counts["train/examples"] and min(written) > 0
    assert written[2] == counts["eval/examples"]


def test_examples_are_whole_and_from_the_documents(english_tokenizer, tmp_path):
    documents = [Document(0, i, SENTENCES * 4) for i in range(4)]
    run(english_tokenizer, tmp_path, documents, eval_fraction=0.0)
    write_shard(tmp_path, tmp_path / "s", shard=0)
    text = english_tokenizer.encode_batch(SENTENCES * 12)
    stream = " ".join(map(str, itertools.chain(*text)))
    for record in read_records(tmp_path / "s"):
        feature = tf.train.Example.FromString(record).features.feature
        values = {name: np.array(f.int64_list.value or f.float_list.value) for name, f in feature.items()}
        ids = values["input_ids"].copy()
        kept = values["masked_lm_weights"] > 0
        ids[values["masked_lm_positions"][kept]] = values["masked_lm_ids"][kept]
        assert ids[0] == 2 and (values["input_mask"] == (np.arange(32) < values["input_mask"].sum())).all()
        first_end, last_end = np.flatnonzero(ids == 3)
        assert last_end == values["input_mask"].sum() - 1
        for segment in (ids[1:first_end], ids[first_end + 1 : last_end]):
            assert " ".join(map(str, segment)) in stream


def test_nsp_needs_another_document(english_tokenizer, tmp_path):
    result = run(english_tokenizer, tmp_path, [Document(0, 0, SENTENCES)], pair_task="nsp", eval_fraction=0.0)
    assert result.counts["train/documents_without_another"] == 1
    assert result.counts["train/examples"] == 0


def test_sentences_without_a_token_drop_out(english_tokenizer, tmp_path):
    documents = [Document(0, 0, ["\u0301", *SENTENCES]), Document(0, 1, ["\u0301"])]
    counts = run(english_tokenizer, tmp_path, documents, eval_fraction=0.0).counts
    assert (counts["train/documents"], counts["train/sentences"]) == (1, 3)


@pytest.mark.parametrize(
    ("task", "sizes"), [("sop", [3] * 16 + [6] * 16 + [8] * 16 + [11] * 2 + [1]), ("nsp", [8] * 36 + [7])]
)
def test_units_are_packed_in_order_and_the_first_are_small(task, sizes):
    documents = [Document(0, i, ["x" * 100_000]) for i in range(295)]
    units = list(work_units.pack_units(documents, pair_task=task))
    assert [d.index_in_file for unit in units for d in unit.documents] == list(range(295))
    assert [len(unit.documents) for unit in units] == sizes
    assert [unit.number for unit in units] == list(range(len(units)))
