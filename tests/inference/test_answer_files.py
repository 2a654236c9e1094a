import fcntl
import json

import numpy as np
import pytest

from albert_tf.errors import UserError
from albert_tf.inference.answer_files import AnswerFile

VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
ROWS = [(line, {"pooled_embedding": vector}) for line, vector in enumerate(VECTORS, start=1)]
LABELS = {"label": "yes", "score": np.float32(0.75), "probabilities": {"yes": 0.75, "no": 0.25}}


def begun(path, **settings):
    output = AnswerFile(path)
    output.begin(settings)
    return output


def finished(path, *parts):
    output = begun(path)
    for part in parts:
        output.write(part)
        output.commit()
    output.finish()
    output.close()
    return path


def test_values_come_back_exactly(tmp_path):
    assert np.array_equal(np.load(finished(tmp_path / "a.npy", ROWS[:2], ROWS[2:])), VECTORS)
    lines = finished(tmp_path / "a.jsonl", ROWS).read_text().splitlines()
    values = [json.loads(line) for line in lines]
    assert [value["line"] for value in values] == [1, 2, 3, 4, 5]
    assert np.array_equal(np.array([value["pooled_embedding"] for value in values], np.float32), VECTORS)
    header, *rows = finished(tmp_path / "a.tsv", ROWS[:3], ROWS[3:]).read_text().splitlines()
    assert header == "line\tpooled_embedding_0\tpooled_embedding_1\tpooled_embedding_2"
    assert np.array_equal(np.array([row.split("\t")[1:] for row in rows], np.float32), VECTORS)


def test_labels_are_written_by_name(tmp_path):
    assert json.loads(finished(tmp_path / "a.jsonl", [(7, LABELS)]).read_text()) == {"line": 7, **LABELS}
    table = finished(tmp_path / "a.tsv", [(7, LABELS), (8, {**LABELS, "label": "no"})]).read_text()
    assert table.splitlines()[0] == "line\tlabel\tscore\tprobabilities_yes\tprobabilities_no"
    assert table.splitlines()[2] == "8\tno\t0.75\t0.75\t0.25"
    tokens = finished(tmp_path / "b.tsv", [(1, {"tokens": ["a", "b"], "labels": ["O", "B"]})]).read_text()
    assert tokens == "line\ttokens\tlabels\n1\ta b\tO B\n"


def test_rows_without_an_answer_keep_their_place_in_an_array(tmp_path):
    gap = (9, None)
    array = np.load(finished(tmp_path / "a.npy", [gap, gap], [ROWS[0], gap], [gap]))
    assert array.shape == (5, 3)
    assert np.array_equal(array[2], VECTORS[0])
    assert np.isnan(np.delete(array, 2, axis=0)).all()
    assert len(finished(tmp_path / "a.jsonl", [gap, ROWS[0]]).read_text().splitlines()) == 1
    assert np.load(finished(tmp_path / "b.npy", [gap])).shape == (1, 0)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".tsv"])
def test_what_was_committed_is_kept_and_the_rest_is_written_again(tmp_path, suffix):
    whole = finished(tmp_path / f"whole{suffix}", ROWS[:2], ROWS[2:]).read_bytes()
    path = tmp_path / f"a{suffix}"
    output = begun(path, answer="x")
    output.write(ROWS[:2])
    output.commit(position=[20, 2])
    output.write(ROWS[4:])
    output.close()
    assert not path.exists()
    with pytest.raises(UserError, match=r"begun with a different answer; repeat .* delete \.a"):
        begun(path, answer="y")
    output = begun(path, answer="x")
    assert output.progress["position"] == [20, 2]
    output.write(ROWS[2:])
    output.finish()
    output.close()
    assert path.read_bytes() == whole
    assert {file.name for file in tmp_path.iterdir()} == {path.name, f"whole{suffix}"}


def test_bad_outputs_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"must end in one of .jsonl, .tsv, .npy"):
        AnswerFile(tmp_path / "a.txt")
    with pytest.raises(UserError, match="exists; delete it"):
        AnswerFile(finished(tmp_path / "a.jsonl", ROWS))
    output = AnswerFile(tmp_path / "b.jsonl")
    with pytest.raises(UserError, match="another process is writing"):
        AnswerFile(tmp_path / "b.jsonl")
    output.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_file_that_is_finished_while_another_process_opens_it_stays_whole(tmp_path, monkeypatch):
    path, flock = tmp_path / "a.jsonl", fcntl.flock
    first = begun(path)
    first.write(ROWS)

    def finish_then_lock(*arguments):
        first.finish()
        first.close()
        flock(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", finish_then_lock)
        with pytest.raises(UserError, match="exists; delete it"):
            begun(path)
    assert len(path.read_text().splitlines()) == len(ROWS)
    assert list(tmp_path.iterdir()) == [path]
