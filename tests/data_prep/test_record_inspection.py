import json

import numpy as np
import pytest
from conftest import GOLDEN

from albert_tf.errors import UserError
from albert_tf.records.contract import RECORD_FEATURES, encode_examples
from albert_tf.records.framing import frame
from albert_tf.settings.data_preparation import InspectConfig
from albert_tf_data_prep.record_inspection import find_problems, inspect_records, show_example

MODEL = str(GOLDEN / "tokenization" / "spiece.model")


@pytest.fixture
def batch():
    return dict(np.load(GOLDEN / "pretraining_records" / "alice_seq64.npz"))


def test_our_own_records_agree_with_their_manifest(alice_records, capsys):
    for split, files in (("train", "train-*"), ("eval", "eval-*"), ("one of two", "train-00000*")):
        assert inspect_records(InspectConfig(input_file=f"{alice_records}/{files}")) == 0, split
        assert "Problem" not in capsys.readouterr().out


def test_a_manifest_that_says_something_else_is_a_problem(alice_records, tmp_path, capsys):
    for path in alice_records.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(alice_records)).parent.mkdir(exist_ok=True)
            (tmp_path / path.relative_to(alice_records)).write_bytes(path.read_bytes())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["statistics"]["train"]["label_1"] += 1
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert inspect_records(InspectConfig(input_file=f"{tmp_path}/train-*", num_examples=0)) == 1
    assert "Problem: label_1 is" in capsys.readouterr().out


def test_the_originals_records_have_no_problem(batch, english_tokenizer):
    assert not np.any(list(find_problems(batch, english_tokenizer).values()))


def write_records(path, batch):
    features = [feature for feature in RECORD_FEATURES if feature.name in batch]
    path.write_bytes(b"".join(map(frame, encode_examples(batch, features))))
    return InspectConfig(input_file=str(path), tokenizer=MODEL, num_examples=6)


@pytest.mark.parametrize(
    ("name", "place", "value", "problem"),
    [
        ("input_ids", (5, 7), 30_000, "with ids outside the vocabulary"),
        ("input_ids", (5, 0), 9, "that do not begin with [CLS]"),
        ("input_mask", (5, 3), 0, "whose input_mask has a gap"),
        ("input_mask", (5, slice(0, 3)), 99, "with an input_mask other than 0 and 1"),
        ("segment_ids", (5, 3), 2, "with a segment other than 0 and 1"),
        ("next_sentence_labels", (5, 0), 2, "with a label other than 0 and 1"),
        ("masked_lm_ids", (5, 0), 30_000, "with a target outside the vocabulary"),
        ("masked_lm_positions", (5, -1), 64, "with a target outside the example"),
        ("masked_lm_ids", (5, 0), 2, "with a target that is [CLS], [SEP] or padding"),
        ("masked_lm_positions", (5, 1), 1, "whose targets are not in order"),
        ("masked_lm_weights", (5, slice(None)), 0, "with no target"),
    ],
)
def test_each_broken_rule_is_found(batch, tmp_path, capsys, name, place, value, problem):
    batch[name][place] = value
    assert inspect_records(write_records(tmp_path / "records", batch)) == 1
    printed = capsys.readouterr().out
    assert f"Problem: 1 example(s) {problem}" in printed and "444 examples" in printed and "Example 6:" in printed


def test_negative_ids_are_found(batch, english_tokenizer):
    batch["input_ids"][5, 7] = -1
    assert np.flatnonzero(find_problems(batch, english_tokenizer)["with ids outside the vocabulary"]) == [5]


def test_records_of_which_none_is_sound_are_told(batch, tmp_path, capsys):
    batch["segment_ids"][:, 3] = 2
    assert inspect_records(write_records(tmp_path / "records", batch)) == 1
    assert capsys.readouterr().out == "Problem: 445 example(s) with a segment other than 0 and 1\n"


def test_records_without_word_boundaries_are_counted_without_runs(batch, tmp_path, capsys):
    del batch["token_boundary"]
    assert inspect_records(write_records(tmp_path / "records", batch)) == 0
    printed = capsys.readouterr().out
    assert "445 examples" in printed and "replacement shares: mask" in printed and "run shares" not in printed


def test_an_example_reads_as_its_text(batch, english_tokenizer):
    lines = show_example(batch, 1, tokenizer=english_tokenizer, color=False, number=2)
    assert lines[0] == "Example 2: 64 of 64 tokens, 10 targets, label 1 (swapped, or not of one text)"
    assert "the [mouse>instincts] was speaking" in lines[1] and "one foot up the chimney, [and] [said=]" in lines[2]
    colored = show_example(batch, 1, tokenizer=english_tokenizer, color=True, number=2)
    assert "\033[41;37mmouse\033[0m\033[31m>instincts\033[0m" in colored[1]


def test_records_of_mixed_lengths_are_refused(batch, tmp_path):
    short = {name: values[:3, :32] for name, values in batch.items()}
    path = tmp_path / "mixed"
    records = encode_examples({name: values[:3] for name, values in batch.items()}) + encode_examples(short)
    path.write_bytes(b"".join(map(frame, records)))
    with pytest.raises(UserError, match="does not hold ALBERT pre-training records of one length"):
        inspect_records(InspectConfig(input_file=str(path), tokenizer=MODEL))


def test_another_tokenizer_than_that_of_the_manifest_is_refused(alice_records):
    with pytest.raises(UserError, match="is not the tokenizer of the records; drop the flag"):
        inspect_records(InspectConfig(input_file=f"{alice_records}/train-*", tokenizer=MODEL))
