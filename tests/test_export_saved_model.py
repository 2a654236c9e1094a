import checks
from commands import assert_one_sentence, run

from albert_tf.heads import AlbertWithHeads
from albert_tf.tokenizer import SentencePieceTokenizer

MODULE = ["-m", "albert_tf.export_saved_model"]


def test_the_command_exports_a_checkpoint_and_checks_it(alice_vocab, tmp_path):
    tokenizer = SentencePieceTokenizer.load(alice_vocab)
    model = AlbertWithHeads(checks.tiny_config(vocab_size=tokenizer.vocab_size))
    checks.save_run_directory(tmp_path / "run", model, tokenizer)
    flags = [f"--checkpoint={tmp_path / 'run'}", f"--output_dir={tmp_path / 'export'}", "--version=2"]
    process = run(*MODULE, *flags)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "export" / "2" / "saved_model.pb").exists()
    assert_one_sentence(run(*MODULE, *flags), "a served version is never changed")


def test_a_missing_checkpoint_ends_in_one_sentence(tmp_path):
    process = run(*MODULE, f"--checkpoint={tmp_path}/none", f"--output_dir={tmp_path}/export")
    assert_one_sentence(process, "does not exist")
