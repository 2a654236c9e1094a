import dataclasses
import hashlib
import json
import shutil

import pytest

from albert_tf.errors import UserError
from albert_tf.files import locked_directory
from albert_tf.records.framing import read_records
from albert_tf.records.manifest import Manifest
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep import pretraining_records
from albert_tf_data_prep.pretraining_records import create_records


def make_config(alice_text, alice_vocab, directory, **changes):
    settings = {
        "input_file": str(alice_text), "output_dir": str(directory), 
        "spm_model_file": str(alice_vocab / "spiece.model"),
        "document_mode": "heading", "sentence_split": "prose", "max_seq_length": 32, "dupe_factor": 2,
        "eval_fraction": 0.3, "num_shards": 2, "num_workers": 1,
    }  # fmt: skip
    return RecordsConfig(**{**settings, **changes})


def hashes(directory, without="-"):
    files = [p for p in directory.rglob("*") if p.is_file() and without not in p.parts]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_directory_is_complete_and_its_counts_are_right(alice_records):
    manifest = Manifest.load(alice_records)
    assert set(manifest.shards) == {
        "train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "eval-00000-of-00001.tfrecord",
    }  # fmt: skip
    for name, shard in manifest.shards.items():
        content = (alice_records / name).read_bytes()
        assert len(list(read_records(alice_records / name))) == shard.examples > 0 and len(content) == shard.size_bytes
    train = manifest.statistics["train"]
    assert train["examples"] == sum(s.examples for name, s in manifest.shards.items() if name.startswith("train"))
    assert 0.4 < train["label_1_share"] < 0.6
    assert 0.13 < train["masked_share"] < 0.17
    assert not [path for path in alice_records.iterdir() if path.name.startswith(".")]


def test_the_number_of_processes_does_not_change_a_byte(alice_text, alice_vocab, alice_records, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    create_records(make_config(alice_text, alice_vocab, tmp_path, num_workers=2))
    assert hashes(tmp_path) == hashes(alice_records)


def test_the_seed_changes_the_examples(alice_text, alice_vocab, alice_records, tmp_path):
    create_records(make_config(alice_text, alice_vocab, tmp_path, random_seed=2))
    assert hashes(tmp_path)["train-00000-of-00002.tfrecord"] != hashes(alice_records)["train-00000-of-00002.tfrecord"]


def test_the_same_command_again_does_nothing_and_another_is_refused(alice_text, alice_vocab, alice_records):
    before = {path: path.stat().st_mtime_ns for path in alice_records.rglob("*")}
    config = make_config(alice_text, alice_vocab, alice_records)
    assert create_records(config) == Manifest.load(alice_records)
    assert {path: path.stat().st_mtime_ns for path in alice_records.rglob("*")} == before
    with pytest.raises(UserError, match="made with a different dupe_factor; choose another --output_dir"):
        create_records(dataclasses.replace(config, dupe_factor=3))


def test_a_finished_directory_with_a_damaged_file_is_not_taken_as_it_is(
    alice_text, alice_vocab, alice_records, tmp_path
):
    shutil.copytree(alice_records, tmp_path / "out")
    config = make_config(alice_text, alice_vocab, tmp_path / "out")
    file = tmp_path / "out" / "train-00001-of-00002.tfrecord"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=f"of which {file.name} has 1,000 bytes, and .* were written; choose another"):
        create_records(config)
    file.unlink()
    with pytest.raises(UserError, match=f"of which {file.name} is missing; choose another --output_dir or delete"):
        create_records(config)


def test_an_edited_file_of_equal_length_is_another_input(alice_text, alice_vocab, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(alice_text.read_bytes())
    config = make_config(path, alice_vocab, tmp_path / "out")
    create_records(config)
    path.write_bytes(alice_text.read_bytes().replace(b"Alice", b"Bobby"))
    with pytest.raises(UserError, match="made with a different input; choose another --output_dir"):
        create_records(config)


def test_a_run_that_fails_in_the_middle_leaves_nothing_finished_and_goes_on_from_there(
    alice_text, alice_vocab, alice_records, tmp_path, monkeypatch
):
    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    config = make_config(alice_text, alice_vocab, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pretraining_records, "_write_shards", full_disk)
        with pytest.raises(OSError):
            create_records(config)
    assert [path.name for path in tmp_path.iterdir()] == [".spill"]
    with pytest.raises(UserError, match="unfinished work of a run with a different dupe_factor"):
        create_records(dataclasses.replace(config, dupe_factor=3))
    with monkeypatch.context() as patch:
        patch.setattr(pretraining_records, "__version__", "0.0.0")
        with pytest.raises(UserError, match="unfinished work of a run with a different albert_tf_version"):
            create_records(config)
    unit = tmp_path / ".spill" / "unit-00000000.records"
    before = unit.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(pretraining_records.shutil, "rmtree", lambda *_, **__: None)
        create_records(config)
    assert unit.stat().st_mtime_ns == before, "the finished unit was made again"
    assert hashes(tmp_path, without=".spill") == hashes(alice_records)


def test_a_second_process_on_one_directory_is_refused(alice_text, alice_vocab, tmp_path):
    with (
        locked_directory(tmp_path, what="writing records into"),
        pytest.raises(UserError, match="another process is writing records"),
    ):
        create_records(make_config(alice_text, alice_vocab, tmp_path))


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("", {}, "has no text"),
        ("\n\n \n", {}, "has no text"),
        ("One.\n\nTwo.\n\nThree.\n", {"document_mode": "blank_line"}, "of 3 document.s., 3 have one sentence only"),
        ("One. Two. Three.\n", {"pair_task": "nsp"}, "--pair_task=nsp needs two documents"),
        ("One. Two. Three.\n", {"eval_fraction": 0.001}, "held out none"),
    ],
)
def test_text_that_makes_no_example_is_explained(alice_vocab, tmp_path, text, changes, message):
    path = tmp_path / "text.txt"
    path.write_text(text)
    config = make_config(path, alice_vocab, tmp_path / "out", **{"eval_fraction": 0.0, **changes})
    with pytest.raises(UserError, match=message):
        create_records(config)
    assert not list((tmp_path / "out").glob("*"))


def test_replaced_bytes_are_counted_in_the_manifest(alice_text, alice_vocab, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(alice_text.read_bytes() + b"\nA bad \xff byte here.\n")
    config = make_config(path, alice_vocab, tmp_path / "out")
    with pytest.raises(UserError, match="text must be UTF-8"):
        create_records(config)
    create_records(dataclasses.replace(config, invalid_bytes="replace"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["statistics"]["input"]["lines_with_invalid_bytes"] == 1


@pytest.mark.parametrize("task", ["nsp", "none"])
def test_other_pair_tasks(alice_text, alice_vocab, tmp_path, task):
    manifest = create_records(make_config(alice_text, alice_vocab, tmp_path, pair_task=task, eval_fraction=0.0))
    share = manifest.statistics["train"]["label_1_share"]
    assert 0.4 < share < 0.6 if task == "nsp" else share == 0
    assert manifest.pair_task == task


def test_each_flag_takes_its_kind_of_vocabulary(alice_text, alice_vocab, tmp_path):
    config = make_config(alice_text, alice_vocab, tmp_path / "out")
    words = tmp_path / "vocab.txt"
    words.write_text("the\nof\n")
    for file in (words, alice_vocab / "spiece.model"):
        with pytest.raises(UserError, match=r"is no WordPiece vocabulary, which has .* \[PAD\], \[UNK\]"):
            create_records(dataclasses.replace(config, spm_model_file=None, vocab_file=str(file)))
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(UserError, match="is a WordPiece vocabulary, .* pass it as --vocab_file"):
        create_records(dataclasses.replace(config, spm_model_file=str(words)))
