from pathlib import Path

from albert_tf.summary import summary_lines
from albert_tf.train_log import TrainLog

EVAL = {
    "masked_lm_loss": 5.5,
    "masked_lm_accuracy": 0.25,
    "masked_lm_unigram_cross_entropy": 6.0,
    "sentence_order_accuracy": 0.75,
    "swapped_share": 0.5,
}


def lines_of(tmp_path, metrics, **changes):
    log = TrainLog(tmp_path, start_step=0, num_train_steps=10)
    log.write("train", 10, {"loss": 1.0, "tokens_per_second": 1234.0})
    if metrics:
        log.write("eval", 10, metrics)
    arguments = {"step": 10, "num_train_steps": 10, "output_dir": "out", "num_held_out": 7, "exported": Path("e/1")}
    return "\n".join(summary_lines(log, **{**arguments, **changes}))


def test_everything_is_said(tmp_path):
    text = lines_of(tmp_path, EVAL)
    for part in (
        "loss 5.500 nats, accuracy 0.250",
        "6.000 nats; the model is 0.500 below",
        "accuracy 0.750",
        "share of swapped pairs 0.500",
        "1,234 tokens a second",
        "Export: e/1",
        "saved_model.load('e/1')",
    ):
        assert part in text


def test_a_model_that_has_learnt_nothing_is_not_praised(tmp_path):
    assert "0.500 ABOVE" in lines_of(tmp_path, {**EVAL, "masked_lm_loss": 6.5})


def test_without_held_out_records_or_export_there_is_less_to_say(tmp_path):
    text = lines_of(tmp_path, None, num_held_out=0, exported=None)
    assert "held-out" not in text and "Export" not in text
