from pathlib import Path

from albert_tf.pretraining.summary import export_lines, summary_lines

EVAL = {
    "masked_lm_loss": 5.5,
    "masked_lm_accuracy": 0.25,
    "masked_lm_unigram_cross_entropy": 6.0,
    "sentence_order_accuracy": 0.75,
    "swapped_share": 0.5,
}


def lines_of(metrics, **changes):
    arguments = {"step": 10, "num_train_steps": 10, "output_dir": "out", "num_held_out": 7, "best": (10, 5.0),
                 "tokens_per_second": 1234.0}  # fmt: skip
    return "\n".join(summary_lines(metrics, **{**arguments, **changes}))


def test_everything_is_said():
    text = lines_of(EVAL, best=(8, 4.5))
    for part in (
        "On 7 held-out examples",
        "loss 5.500 nats, accuracy 0.250",
        "6.000 nats; the model is 0.500 below",
        "accuracy 0.750",
        "share of swapped pairs 0.500",
        "1,234 tokens a second",
        "best held-out loss was 4.500 at step 8",
    ):
        assert part in text
    export = "\n".join(export_lines(Path("e/1")))
    assert "Export: e/1" in export and "saved_model.load('e/1')" in export


def test_a_model_that_has_learnt_nothing_is_not_praised():
    assert "0.500 ABOVE" in lines_of({**EVAL, "masked_lm_loss": 6.5})


def test_without_held_out_records_there_is_less_to_say():
    text = lines_of(None, num_held_out=0, best=None, tokens_per_second=None)
    assert "held-out" not in text and "speed" not in text
