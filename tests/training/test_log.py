import json
import logging

import tensorflow as tf

from albert_tf.training.log import TrainLog

METRICS = {"loss": 1.0, "tokens_per_second": 5.0, "data_wait": 0.01, "utilisation": 0.5}


def test_lines_are_written_found_and_cut_back_to_the_restored_step(tmp_path):
    log = TrainLog(tmp_path, start_step=0, num_train_steps=100)
    for step, speed in [(10, 5.0), (20, 9.0), (30, 7.0)]:
        log.write("train", step, {**METRICS, "tokens_per_second": speed})
    log.write("eval", 20, {"loss": 3.0})
    assert log.last("eval", 20)["loss"] == 3.0 and log.last("eval", 30) is None
    log.write("eval", 20, {"loss": 4.0}, held_out="84 of 84")
    assert log.last("eval", 20, held_out="84 of 84")["loss"] == log.last("eval", 20)["loss"] == 4.0
    assert log.last("eval", 20, held_out="8 of 84") is None
    assert log.median("train", "tokens_per_second") == 7.0
    with open(tmp_path / "metrics.jsonl", "a") as stream:
        stream.write('{"split": "train", "st')  # a crash in mid-line
    TrainLog(tmp_path, start_step=20, num_train_steps=100)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [10, 20, 20, 20]


def test_tensorboard_scalars_are_written(tmp_path):
    TrainLog(tmp_path, start_step=0, num_train_steps=100).write("train", 10, METRICS)
    (events,) = (tmp_path / "tensorboard" / "train").glob("events*")
    tags = {v.tag for e in tf.compat.v1.train.summary_iterator(str(events)) for v in e.summary.value}
    assert tags == set(METRICS)


def scalars(directory):
    files = sorted(directory.glob("tensorboard/*/events*"))
    events = [event for file in files for event in tf.compat.v1.train.summary_iterator(str(file))]
    return sorted({event.step for event in events if event.summary.value})


def test_tensorboard_is_cut_back_too(tmp_path):
    log = TrainLog(tmp_path, start_step=0, num_train_steps=100)
    for step in (10, 20, 30):
        log.write("train", step, METRICS)
    assert scalars(tmp_path) == [10, 20, 30]
    log.cut_back(20)  # a rollback
    log.write("train", 25, METRICS)
    assert scalars(tmp_path) == [10, 20, 25]
    newest = max(tmp_path.glob("tensorboard/train/events*"), key=lambda file: file.stat().st_mtime_ns)
    with open(newest, "ab") as stream:
        stream.write(b"half an event")  # a crash
    again = TrainLog(tmp_path, start_step=25, num_train_steps=100)
    again.write("train", 28, METRICS)
    assert scalars(tmp_path) == [10, 20, 25, 28]
    TrainLog(tmp_path, start_step=0, num_train_steps=100)
    assert scalars(tmp_path) == []


def test_events_whose_line_a_kill_prevented_are_cut_and_made_again(tmp_path):
    log = TrainLog(tmp_path, start_step=0, num_train_steps=100)
    for step in (10, 20):
        log.write("eval", step, METRICS)
    lines = tmp_path / "metrics.jsonl"
    lines.write_text(lines.read_text().splitlines()[0] + "\n")  # as if killed between the event and the line of 20
    again = TrainLog(tmp_path, start_step=20, num_train_steps=100)
    assert again.last("eval", 20) is None and scalars(tmp_path) == [10]
    again.write("eval", 20, METRICS)
    events = [e for file in tmp_path.glob("tensorboard/eval/*") for e in tf.compat.v1.train.summary_iterator(str(file))]
    assert sorted(e.step for e in events for v in e.summary.value if v.tag == "loss") == [10, 20]


def test_the_first_line_has_no_estimate_of_the_end_since_it_counts_compilation(tmp_path, caplog, monkeypatch):
    clock = iter([1000.0, 1010.0])
    monkeypatch.setattr("albert_tf.training.log.time.monotonic", lambda: next(clock))
    log = TrainLog(tmp_path, start_step=0, num_train_steps=100)
    with caplog.at_level(logging.INFO, logger="absl"):
        log.write("train", 10, METRICS)
        log.write("train", 20, METRICS)
    first, second = (record.message for record in caplog.records)
    assert "ETA ?" in first and "ETA 1m20s" in second  # 80 steps of a second each
