import json

import checks
import numpy as np
import pytest

from albert_tf.checkpoints.opening import open_checkpoint
from albert_tf.errors import UserError
from albert_tf.export.saved_model_writer import export_saved_model
from albert_tf.inference import file_jobs
from albert_tf.inference.engine import load_engine
from albert_tf.inference.file_jobs import run_inference
from albert_tf.settings.inference import InferenceConfig

TEXTS = ["Alice was beginning to get very tired.", "Down, down, down.", "“Oh dear!” said the Rabbit, 2,500 times."] * 5


@pytest.fixture
def run(tmp_path, run_directory):
    """Returns a function that runs the command on texts and returns the path of its output."""

    def call(texts=TEXTS, *, name="out.npy", **flags):
        content, source = texts if isinstance(texts, bytes) else "\n".join(texts).encode(), tmp_path / "texts.txt"
        if not source.exists() or source.read_bytes() != content:
            source.write_bytes(content)
        flags = {"checkpoint": str(run_directory), "input": str(source), **flags}
        if "saved_model_dir" in flags:
            del flags["checkpoint"]
        output = tmp_path / name
        run_inference(InferenceConfig(output=str(output), precision="float32", **flags))
        return output

    return call


def test_answers_are_those_of_the_engine_in_the_order_of_the_input(run, run_directory, monkeypatch):
    monkeypatch.setattr(file_jobs, "WINDOW", 4)
    expected = load_engine(run_directory, precision="float32").embed(TEXTS)
    assert np.abs(np.load(run()) - expected).max() < 1e-6


def test_a_run_that_failed_goes_on_with_the_same_bytes(run, monkeypatch):
    monkeypatch.setattr(file_jobs, "WINDOW", 4)
    whole = run(name="whole.jsonl").read_bytes()
    answers = []
    answer = file_jobs._Inference._answer

    def fail_at_the_third(self, window):
        answers.append(window)
        if len(answers) == 3:
            raise OSError(28, "No space left on device")
        return answer(self, window)

    with monkeypatch.context() as patch:
        patch.setattr(file_jobs._Inference, "_answer", fail_at_the_third)
        with pytest.raises(OSError):
            run(name="out.jsonl")
    with pytest.raises(UserError, match="begun with a different --answer"):
        run(name="out.jsonl", answer="mean_embedding")
    first_lines = []

    def note(self, window):
        first_lines.append(window.rows[0].line)
        return answer(self, window)

    monkeypatch.setattr(file_jobs._Inference, "_answer", note)
    assert run(name="out.jsonl").read_bytes() == whole
    assert first_lines == [9, 13]


def test_rows_that_are_left_out_are_counted(run, caplog):
    texts = b"Alice\n\nvery " + b"very " * 40 + b"tired\ncaf\xe9\nend\n"
    with pytest.raises(UserError, match=r"texts.txt:2: it is empty; --bad_rows=skip"):
        run(texts)
    with pytest.raises(UserError, match=r"texts.txt:3: the text is longer than 32 tokens; --long_texts=cut"):
        run(texts, bad_rows="skip")
    array = np.load(run(texts, bad_rows="skip", long_texts="skip"))
    assert np.isnan(array).all(axis=1).tolist() == [False, True, True, True, False]
    lines = run(texts, name="out.jsonl", bad_rows="skip", long_texts="cut").read_text().splitlines()
    assert [json.loads(line)["line"] for line in lines] == [1, 3, 5]


def test_a_classifiers_labels_and_probabilities(run, tmp_path_factory, alice_vocab):
    directory = checks.save_random_run(
        tmp_path_factory.mktemp("mnli"), alice_vocab, heads=("sequence_classification",), num_labels=3
    )
    (directory / "label_head.json").write_text(
        json.dumps({"head": "sequence_classification", "labels": ["yes", "no", "maybe"]})
    )
    lines = run(name="out.jsonl", checkpoint=str(directory), answer="sequence_classification").read_text().splitlines()
    engine = load_engine(directory, precision="float32")
    logits = np.stack(engine.answer(engine.tokenize(TEXTS), output="sequence_classification"))
    for line, row in zip(map(json.loads, lines), logits, strict=True):
        assert line["label"] == ["yes", "no", "maybe"][row.argmax()]
        expected = np.exp(row) / np.exp(row).sum()
        assert np.allclose(list(line["probabilities"].values()), expected, atol=1e-6)
        assert line["score"] == pytest.approx(expected.max(), abs=1e-6)


def test_labels_of_tokens_and_sentence_order(run, tmp_path_factory, alice_vocab):
    directory = checks.save_random_run(
        tmp_path_factory.mktemp("ner"), alice_vocab, heads=("token_classification",), num_labels=2
    )
    lines = run(TEXTS[:2], name="out.jsonl", checkpoint=str(directory), answer="token_classification",
                label_head="token_classification").read_text().splitlines()  # fmt: skip
    for line, text in zip(map(json.loads, lines), TEXTS, strict=False):
        assert "".join(line["tokens"]).replace("▁", " ").strip() == text.lower()
        assert len(line["labels"]) == len(line["tokens"]) and set(line["labels"]) <= {"0", "1"}
    order = run(TEXTS[:1], name="order.tsv", answer="sentence_order").read_text().splitlines()
    assert order[0] == "line\tin_order_probability" and 0 < float(order[1].split("\t")[1]) < 1


def test_an_export_gives_the_same_embeddings_and_the_same_judgement_of_order(run, served_checkpoint, exported):
    from_export = np.load(run(saved_model_dir=str(exported.parent), answer="mean_embedding"))
    from_checkpoint = np.load(run(name="b.npy", checkpoint=str(served_checkpoint), answer="mean_embedding"))
    assert np.abs(from_export - from_checkpoint).max() < 1e-5
    compare_answers(run, served_checkpoint, exported, answer="sentence_order")
    with pytest.raises(
        UserError, match=r"cannot give it; it gives pooled_embedding, .*, cls_embedding, sentence_order"
    ):
        run(name="c.jsonl", saved_model_dir=str(exported), answer="token_classification")


@pytest.mark.slow
@pytest.mark.parametrize("head", ["sequence_classification", "token_classification"])
def test_an_export_gives_the_same_labels(run, tmp_path_factory, alice_vocab, head):
    directory = checks.save_random_run(tmp_path_factory.mktemp("labels"), alice_vocab, heads=(head,), num_labels=3)
    (directory / "label_head.json").write_text(json.dumps({"head": head, "labels": ["yes", "no", "may be"]}))
    target = export_saved_model(open_checkpoint(directory), output_dir=tmp_path_factory.mktemp("e"), version=1)
    compare_answers(run, directory, target, answer=head)


def compare_answers(run, directory, target, **flags):
    """Checks that rows are the same from a checkpoint and from its export; numbers within 1e-5."""
    names = {"a.jsonl": {"checkpoint": str(directory)}, "b.jsonl": {"saved_model_dir": str(target)}}
    files = [run(name=name, **model, **flags) for name, model in names.items()]
    ours, theirs = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    assert len(ours) == len(theirs) == len(TEXTS)
    for one, other in zip(ours, theirs, strict=True):
        one, other = ({**row.pop("probabilities", {}), **row} for row in (one, other))
        assert one == pytest.approx(other, abs=1e-5) if "tokens" not in one else one == other


def test_an_answer_that_the_model_cannot_give_is_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(UserError, match=r"--answer=sequence_classification: .* cannot give it; it gives pooled_emb"):
        run(name="out.jsonl", answer="sequence_classification")
    with pytest.raises(UserError, match="a .npy file holds embeddings"):
        run(answer="sentence_order")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_texts_of_which_none_is_answered_are_refused_and_leave_nothing(run, tmp_path):
    with pytest.raises(UserError, match="holds no text that can be answered"):
        run(b"")
    with pytest.raises(UserError, match=r"2 bad and 1 long row\(s\) were left out"):
        run(b"\n\n" + b"very " * 40 + b"\n", bad_rows="skip", long_texts="skip")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    with pytest.raises(UserError, match="--input=.*none does not exist"):
        run(input=str(tmp_path / "none"))
    with pytest.raises(UserError, match="--output=/proc/x.npy cannot be written"):
        run(name="/proc/x.npy")
