from commands import assert_one_sentence, run

SCRIPT = "data_prep/train_vocab.py"


def test_the_command_trains_and_then_says_that_it_is_done(alice_text, tmp_path):
    flags = [f"--input_file={alice_text}", f"--output_dir={tmp_path}", "--vocab_size=300", "--sentence_split=prose"]
    for message in ("300 pieces", "nothing to do"):
        process = run(SCRIPT, *flags)
        assert process.returncode == 0, process.stderr
        assert message in process.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"spiece.model", "tokenizer_settings.json", "vocab_training.json"}


def test_mistakes_end_in_one_sentence(alice_text, tmp_path):
    flags = [f"--input_file={alice_text}", f"--output_dir={tmp_path / 'out'}"]
    assert_one_sentence(run(SCRIPT, *flags), "--vocab_size=30000 is too large for this text; it gives at most")
    assert_one_sentence(run(SCRIPT, flags[0]), "--output_dir must be given")
    assert not (tmp_path / "out").exists()
