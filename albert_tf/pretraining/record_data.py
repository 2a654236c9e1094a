"""The records of a pre-training run and what belongs to them: tokenizer, heads, token frequencies, identity."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import MASKED_LM, SENTENCE_ORDER
from albert_tf.errors import UserError
from albert_tf.files import expand_globs
from albert_tf.pretraining.batches import Records, open_records
from albert_tf.records.manifest import RecordsDirectory
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.text.tokenizer_files import Tokenizer, load_tokenizer

_SAMPLE_BYTES = 65536


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunData:
    """Training records, held-out records (either may be absent, not both), and what was found beside them."""

    train: Records | None
    evaluation: Records | None
    directory: RecordsDirectory | None
    tokenizer: Tokenizer | None

    @property
    def shape(self) -> Records:
        """Records whose lengths are those of the run."""
        return self.train or self.evaluation  # type: ignore[return-value]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that the records train: without pairs there is no sentence-order head."""
        if self.directory is not None and self.directory.manifest.pair_task == "none":
            return (MASKED_LM,)
        return (MASKED_LM, SENTENCE_ORDER)

    def token_log_probs(self) -> np.ndarray | None:
        """Returns the log of the add-one frequencies of the training tokens, float32 [vocabulary], if known."""
        if self.directory is None:
            return None
        counts = self.directory.load_token_counts() + 1.0
        return np.log(counts / counts.sum()).astype(np.float32)


def open_data(config: PretrainConfig, albert_config: AlbertConfig) -> RunData:
    """Opens the records and finds the tokenizer that made them; raises UserError where they do not fit together."""
    lengths = {"max_seq_length": config.max_seq_length, "max_predictions_per_seq": config.max_predictions_per_seq}
    opened: dict[str, tuple[Records, RecordsDirectory | None]] = {}
    wanted = {"--input_file": config.trains and config.input_file, "--eval_input_file": config.evaluates and (
        config.eval_input_file)}  # fmt: skip
    for flag, patterns in wanted.items():
        if patterns:
            files = expand_globs(patterns, flag=flag)
            directory = RecordsDirectory.of_files(files, complete=True)
            records = open_records(files, directory=directory, vocab_size=albert_config.vocab_size, **lengths)
            for first, _ in opened.values():
                for name in lengths:
                    ours, theirs = getattr(first, name), getattr(records, name)
                    if ours != theirs:
                        raise UserError(f"--eval_input_file has records of {name}={theirs}, and --input_file of "
                                        f"{ours}; evaluate on records of the same")  # fmt: skip
            opened[flag] = (records, directory)
    if not opened:  # neither training nor evaluation: an export of what is there
        return RunData(train=None, evaluation=None, directory=None, tokenizer=_given_tokenizer(config))
    train, evaluation = opened.get("--input_file"), opened.get("--eval_input_file")
    held_out = [file for file in train[0].files if file.name.startswith("eval-")] if train and train[1] else []
    if held_out:
        raise UserError(f"--input_file names {held_out[0]}, which is held out for --eval_input_file; name train-*")
    _check_same_kind(train and train[1], evaluation and evaluation[1])
    directory = (train or evaluation or (None, None))[1]
    tokenizer = directory.load_tokenizer() if directory else None
    given = _given_tokenizer(config)
    if tokenizer and given and tokenizer.fingerprint != given.fingerprint:
        raise UserError(f"--spm_model_file={config.spm_model_file} is not the tokenizer of the records; drop the flag")
    return RunData(
        train=train and train[0],
        evaluation=evaluation and evaluation[0],
        directory=directory,
        tokenizer=tokenizer or given,
    )


def _given_tokenizer(config: PretrainConfig) -> Tokenizer | None:
    if config.spm_model_file is None:
        return None
    return load_tokenizer(config.spm_model_file, lower_case=config.do_lower_case)


def _check_same_kind(train: RecordsDirectory | None, evaluation: RecordsDirectory | None) -> None:
    """Raises UserError unless training and held-out records have one tokenizer and one task."""
    if train is None or evaluation is None:
        return
    for name in ("tokenizer_fingerprint", "pair_task"):
        ours, theirs = getattr(train.manifest, name), getattr(evaluation.manifest, name)
        if ours != theirs:
            what = {"tokenizer_fingerprint": "tokenizer", "pair_task": "pair task"}[name]
            raise UserError(
                f"the held-out records of {evaluation.path} were made with a different {what} from the training "
                f"records of {train.path} ({theirs} and {ours}); evaluate on records made with the same"
            )


def describe_records(records: Records) -> str:
    """Returns what identifies records: their number, and a fingerprint of names, sizes and bytes.

    Of each file the first and last 64 KiB are read, so that the largest set takes seconds.
    """
    digest = hashlib.sha256()
    for file in records.files:
        digest.update(f"{file.name}:{file.stat().st_size}:".encode())
        digest.update(_sample(file))
    return f"{records.num_examples} examples in {len(records.files)} files, fingerprint {digest.hexdigest()[:16]}"


def _sample(file: Path) -> bytes:
    with open(file, "rb") as stream:
        first = stream.read(_SAMPLE_BYTES)
        stream.seek(max(stream.tell(), file.stat().st_size - _SAMPLE_BYTES))
        return first + stream.read()
