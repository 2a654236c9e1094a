from commands import assert_one_sentence, run
from conftest import GOLDEN

SCRIPT = "data_prep/inspect_records.py"
ORIGINAL = GOLDEN / "pretraining_records" / "alice_seq64.tfrecord"
MODEL = GOLDEN / "tokenization" / "spiece.model"


def test_the_originals_records_are_shown_and_measured():
    process = run(SCRIPT, f"--input_file={ORIGINAL}", f"--tokenizer={MODEL}", "--num_examples=2")
    assert process.returncode == 0, process.stderr
    assert "shedding gallons of tears, until there was a large pool [all] [round] [her]" in process.stdout
    assert "445 examples" in process.stdout and "63.4% with label 1" in process.stdout
    assert "\033" not in process.stdout


def test_mistakes_end_in_one_sentence(tmp_path):
    assert_one_sentence(run(SCRIPT, f"--input_file={ORIGINAL}"), "--tokenizer must name their vocabulary")
    assert_one_sentence(run(SCRIPT, f"--input_file={MODEL}", f"--tokenizer={MODEL}"), "is not a TFRecord file")
