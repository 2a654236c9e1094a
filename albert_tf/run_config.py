"""What each command can be told: frozen dataclasses whose fields become the command's flags."""

import dataclasses
import math
from typing import ClassVar

from albert_tf.errors import UserError
from albert_tf.manifest import PAIR_TASKS
from albert_tf.options import label_head_option, option
from albert_tf.options import require as _require

INVALID_BYTES = ("refuse", "replace")
DOCUMENT_MODES = ("blank_line", "heading", "file", "line")
SENTENCE_SPLITS = ("line", "prose")
MASKING = ("static", "dynamic")
COLORS = ("auto", "always", "never")
OPTIMIZERS = ("lamb", "adamw")
PRECISIONS = ("auto", "float32", "bfloat16")
CHECKPOINT_FORMATS = ("native", "tf1", "hf")
OUTPUT_BIAS_STARTS = ("zeros", "unigram")

# Of the published pre-training with LAMB (paper section 4.1; README of TF1 ALBERT).
PUBLISHED_LEARNING_RATE, PUBLISHED_BATCH_SIZE = 0.00176, 4096
PUBLISHED_TRAIN_STEPS, PUBLISHED_WARMUP_STEPS = 125_000, 3125

MIN_SEQ_LENGTH = 8  # of records made by other programs
MIN_RECORD_LENGTH = 16  # [CLS] A [SEP] B [SEP] with a few words in each segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How raw text is read; shared by the commands that read it."""

    # What says where things lie: a result's record holds the inputs' identity instead.
    PLACES: ClassVar[tuple[str, ...]] = ("input_file", "tfds_name", "tfds_split", "tfds_data_dir", "output_dir")

    output_dir: str = option("Where to write.")
    input_file: str | None = option(
        "Text files: a comma-separated list of paths and globs, also with a scheme (gs://...). "
        ".gz, .bz2, .xz and .zst are decompressed.",
        default=None,
        url=True,
    )
    text_key: str | None = option(
        "The files are JSON lines, with a text under this key; or the feature of --tfds_name (there: text).",
        default=None,
        url=True,
    )
    tfds_name: str | None = option("In place of files: a data set of TensorFlow Datasets.", default=None)
    tfds_split: str = option("Split of --tfds_name, such as train or train[:10%].", default="train")
    tfds_data_dir: str | None = option(
        "Where --tfds_name is, or is to be put. Unset: where TFDS keeps it.", default=None, url=True
    )
    document_mode: str = option(
        "Where documents end: at a blank line, at a Markdown heading, at the end of a file (a JSON line, a TFDS "
        "example), or after every line. The end of a file ends a document always.",
        default="blank_line",
        choices=DOCUMENT_MODES,
    )
    sentence_split: str = option(
        "line: each line is a sentence. prose: lines are paragraphs, cut after . ! ? and the like.",
        default="line",
        choices=SENTENCE_SPLITS,
    )
    invalid_bytes: str = option(
        "What to do with a line that has bytes that are not UTF-8, or a NUL: stop with its place, or put U+FFFD there.",
        default="refuse",
        choices=INVALID_BYTES,
    )

    def __post_init__(self) -> None:
        if bool(self.input_file) == bool(self.tfds_name):
            raise UserError("one of --input_file and --tfds_name must be given, and not both (see --help)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabConfig(TextConfig):
    """Flags of data_prep/train_vocab.py; defaults are the published training settings (README of TF1 ALBERT)."""

    vocab_size: int = option("Number of pieces, the special ones included.", default=30000)
    do_lower_case: bool = option("Lower-case the text; stored with the vocabulary.", default=True)
    strip_accents: bool = option(
        "Decompose characters (NFKD) and drop accents; stored with the vocabulary. Korean, Japanese and Indic scripts "
        "lose much by it: turn it off for them.",
        default=True,
    )
    character_coverage: float = option("Share of the characters that get a piece.", default=0.99995)
    input_sentence_size: int = option("Train on at most this many sentences, drawn at random.", default=10_000_000)
    random_seed: int = option("Seed of the sample.", default=12345)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self, "vocab_size", at_least=32, at_most=1_000_000)
        _require(self, "input_sentence_size", at_least=1)
        _require(self, "random_seed", at_least=0)
        _require(self, "character_coverage", at_least=0.98, at_most=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordsConfig(TextConfig):
    """Flags of data_prep/create_pretraining_data.py; the original's names and defaults where it has them."""

    spm_model_file: str | None = option(
        "SentencePiece model; its tokenizer_settings.json is read from beside it.", default=None
    )
    vocab_file: str | None = option("In its place: a WordPiece vocabulary, one piece a line.", default=None)
    do_lower_case: bool | None = option(
        "Lower-case the text. Unset: as stored with the vocabulary, else true.", default=None
    )
    max_seq_length: int = option("Tokens in an example, [CLS] and [SEP] included.", default=512)
    max_predictions_per_seq: int | None = option(
        "Most masked tokens in an example. Unset: max_seq_length x masked_lm_prob, rounded.", default=None
    )
    masking: str = option(
        "static: masks are in the records. dynamic: training draws new ones in every epoch.",
        default="static",
        choices=MASKING,
    )
    masked_lm_prob: float = option("Share of the tokens that is masked.", default=0.15)
    ngram: int = option("Longest span of words masked together.", default=3)
    favor_shorter_ngram: bool = option("Draw n with probability proportional to 1/n; false: reversed.", default=True)
    do_whole_word_mask: bool = option("Mask whole words; false: single pieces.", default=True)
    dupe_factor: int = option("How often each document is used, with other pairs and masks each time.", default=40)
    short_seq_prob: float = option("Share of document passes with a shorter, random target length.", default=0.1)
    random_seed: int = option("Seed of everything random.", default=12345)
    pair_task: str = option(
        "sop: two consecutive segments, half of them swapped. nsp: B of another document half the time. "
        "none: one segment.",
        default="sop",
        choices=PAIR_TASKS,
    )
    eval_fraction: float = option("Share of the documents held out and written beside, as eval-*.", default=0.0)
    max_unknown_share: float = option(
        "Stop when a larger share of the pieces is unknown: the vocabulary is the wrong one.", default=0.3
    )
    num_shards: int = option("Number of training files.", default=4)
    dry_run: bool = option("Write nothing: make records of the first text and say what all of it would give.",
                           default=False)  # fmt: skip
    num_workers: int | None = option("Processes. Unset: the cores this process may use.", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.spm_model_file) == bool(self.vocab_file):
            raise UserError(
                "one of --spm_model_file and --vocab_file must be given, not both: a SentencePiece model holds its "
                "vocabulary"
            )
        _require(self, "max_seq_length", at_least=MIN_RECORD_LENGTH, at_most=100_000)
        _require(self, "masked_lm_prob", at_least=0.001, at_most=0.9)
        _require(self, "max_predictions_per_seq", at_least=1, at_most=self.max_seq_length)
        _require(self, "ngram", at_least=1, at_most=32)
        _require(self, "dupe_factor", at_least=1)
        _require(self, "short_seq_prob", at_least=0.0, at_most=1.0)
        _require(self, "random_seed", at_least=0)
        _require(self, "eval_fraction", at_least=0.0, at_most=0.9)
        _require(self, "max_unknown_share", at_least=0.0, at_most=1.0)
        _require(self, "num_shards", at_least=1, at_most=100_000)
        _require(self, "num_workers", at_least=1)

    @property
    def tokenizer_file(self) -> str:
        """The one of `spm_model_file` and `vocab_file` that is given."""
        return self.spm_model_file or self.vocab_file or ""

    @property
    def predictions_per_seq(self) -> int:
        """The given `max_predictions_per_seq`, or what `masked_lm_prob` needs."""
        return self.max_predictions_per_seq or max(1, round(self.max_seq_length * self.masked_lm_prob))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Flags of data_prep/inspect_records.py."""

    input_file: str = option("Records: a comma-separated list of paths and globs.")
    tokenizer: str | None = option(
        "Vocabulary of records that have no manifest beside them: a SentencePiece model, vocab.txt or a directory.",
        default=None,
    )
    num_examples: int = option("How many examples to show.", default=3)
    color: str = option("Colours; auto: on a terminal.", default="auto", choices=COLORS)

    REPLACED: ClassVar[dict[str, str]] = dict.fromkeys(("spm_model_file", "vocab_file"), "use --tokenizer=FILE")

    def __post_init__(self) -> None:
        _require(self, "num_examples", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Flags of albert_tf.run_pretraining; the original's names and defaults where it has them."""

    albert_config_file: str = option("Shape of the model: an albert_config.json.")
    output_dir: str = option("Where checkpoints, logs and metrics go; a run found there is continued.")
    input_file: str | None = option("Training records: a comma-separated list of paths and globs.", default=None)
    eval_input_file: str | None = option("Held-out records, evaluated at every checkpoint.", default=None)
    export_dir: str | None = option("Write a SavedModel of the encoder to <export_dir>/1 at the end.", default=None)
    init_checkpoint: str | None = option(
        "Start from the weights of this run, TF1 checkpoint or Hugging Face directory.", default=None
    )
    spm_model_file: str | None = option("Tokenizer of records that have no manifest beside them.", default=None)
    do_lower_case: bool | None = option("With --spm_model_file: whether the records are lower case.", default=None)
    max_seq_length: int | None = option("Length of the records, to be checked. Unset: what it is.", default=None)
    max_predictions_per_seq: int | None = option(
        "Masked slots of the records, to be checked. Unset: what they are.", default=None
    )
    do_train: bool | None = option("Train. Unset: unless --do_eval is given alone.", default=None)
    do_eval: bool | None = option(
        "Evaluate on --eval_input_file; without --do_train: evaluate the newest checkpoint and end. "
        "Unset: if --eval_input_file is given.",
        default=None,
    )
    dry_run: bool = option("Check everything, say what would run, and end.", default=False)
    train_batch_size: int = option("Examples in a step, over all replicas.", default=PUBLISHED_BATCH_SIZE)
    eval_batch_size: int = option("Examples in an evaluation step, over all replicas.", default=64)
    gradient_accumulation_steps: int = option(
        "Micro-batches that a replica works through in a step, to save memory; the update changes by rounding only.",
        default=1,
    )
    remat: bool = option(
        "Compute each layer again in the backward pass: less memory, a third more work, another rounding.",
        default=False,
    )
    optimizer: str = option("lamb or adamw, as ALBERT defines them.", default="lamb", choices=OPTIMIZERS)
    learning_rate: float | None = option(
        "Peak learning rate. Unset: 0.00176 x sqrt(train_batch_size / 4096), from the published one.", default=None
    )
    poly_power: float = option("Power of the polynomial decay.", default=1.0)
    num_train_steps: int = option("Steps of the whole run.", default=PUBLISHED_TRAIN_STEPS)
    num_warmup_steps: int | None = option(
        "Steps of linear warm-up. Unset: 3125, at most a tenth of the run.", default=None
    )
    start_warmup_step: int = option("Step at which warm-up begins.", default=0)
    save_checkpoints_steps: int = option("Steps between checkpoints with evaluation.", default=5000)
    save_checkpoints_secs: float = option("Most seconds without a checkpoint.", default=900.0)
    keep_checkpoint_max: int = option("How many of the newest checkpoints are kept, beside the best.", default=5)
    max_rollbacks: int = option("How often a run that diverges goes back to a checkpoint.", default=3)
    max_loss_jump: float = option(
        "The loss has diverged when the median of 8 steps exceeds this times that of the 128 before. 0: never.",
        default=1.5,
    )
    iterations_per_loop: str = option(
        "Training steps per device call; auto: as many as take 2 to 10 seconds.", default="auto"
    )
    max_eval_steps: int | None = option("Most evaluation steps. Unset: every record.", default=None)
    init_output_bias: str = option(
        "Start the bias of the masked-token output at 0 (the original) or at the log of the token frequencies.",
        default="zeros",
        choices=OUTPUT_BIAS_STARTS,
    )
    profile_steps: int = option(
        "Write a TensorBoard trace of this many steps, those after the first loop, to <output_dir>/profile.", default=0
    )
    precision: str = option(
        "Of the computation; weights are float32. auto: bfloat16 where the hardware has it.",
        default="auto",
        choices=PRECISIONS,
    )
    random_seed: int = option("Seed of initial weights, data order and dropout.", default=12345)
    tpu: str | None = option("TPU to train on: local, a name, or grpc://host:port.", default=None, url=True)
    tpu_zone: str | None = option("Zone of a TPU given by name. Unset: this machine's.", default=None)
    gcp_project: str | None = option("Project of a TPU given by name. Unset: this machine's.", default=None)

    # Flags of the original that are gone, and what stands for them.
    REPLACED: ClassVar[dict[str, str]] = {
        "use_tpu": "--tpu says it: local, a name or an address",
        "tpu_name": "use --tpu=NAME",
        "master": "use --tpu=grpc://host:port",
        "num_tpu_cores": "all cores of the TPU are used",
        "masked_lm_budget": "the original could not train with it; records hold their masks",
        "init_from_group0": "--init_checkpoint takes a checkpoint with the groups of the configuration",
    }

    def __post_init__(self) -> None:
        for name in ("train_batch_size", "eval_batch_size", "gradient_accumulation_steps", "num_train_steps",
                     "save_checkpoints_steps", "keep_checkpoint_max", "max_predictions_per_seq",
                     "max_eval_steps"):  # fmt: skip
            _require(self, name, at_least=1)
        for name in ("num_warmup_steps", "start_warmup_step", "random_seed", "max_rollbacks", "profile_steps"):
            _require(self, name, at_least=0)
        for name in ("learning_rate", "poly_power"):
            _require(self, name, at_least=0.0)
        _require(self, "max_seq_length", at_least=MIN_SEQ_LENGTH)
        _require(self, "save_checkpoints_secs", at_least=1.0)
        if self.max_loss_jump:
            _require(self, "max_loss_jump", at_least=1.1)
        if self.iterations_per_loop != "auto" and not (
            self.iterations_per_loop.isdecimal() and 0 < int(self.iterations_per_loop) < 2**63
        ):
            raise UserError(f"--iterations_per_loop must be auto or a positive integer; "
                            f"received {self.iterations_per_loop!r}")  # fmt: skip
        if self.warmup_steps + self.start_warmup_step > self.num_train_steps:
            raise UserError(
                "--num_warmup_steps (with --start_warmup_step) may not exceed --num_train_steps; "
                f"received {self.warmup_steps + self.start_warmup_step} and {self.num_train_steps} (a flag file counts "
                "too; what comes behind it on the command line is in force)"
            )
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raises UserError for flags that make no sense together."""
        if self.trains and not self.input_file:
            raise UserError(
                "--input_file must be given to train; to evaluate a finished run, give --do_eval without --do_train"
            )
        if self.do_eval and not self.eval_input_file:
            raise UserError("--do_eval needs --eval_input_file")
        if not self.input_file and not self.eval_input_file:
            raise UserError("--input_file or --eval_input_file must be given")
        if self.init_checkpoint is not None and self.init_output_bias != "zeros":
            raise UserError(
                f"--init_output_bias={self.init_output_bias} and --init_checkpoint exclude each other: "
                "the checkpoint has an output bias"
            )
        if self.do_lower_case is not None and self.spm_model_file is None:
            raise UserError("--do_lower_case needs --spm_model_file; a manifest beside the records says it by itself")
        if (self.tpu_zone or self.gcp_project) and self.tpu is None:
            raise UserError("--tpu_zone and --gcp_project need --tpu=NAME")

    @property
    def trains(self) -> bool:
        """Whether to train: as told, or unless `--do_eval` is given alone."""
        return not self.do_eval if self.do_train is None else self.do_train

    @property
    def evaluates(self) -> bool:
        """Whether to evaluate: as told, or where there are held-out records."""
        return self.eval_input_file is not None if self.do_eval is None else self.do_eval

    @property
    def peak_learning_rate(self) -> float:
        """The given rate, or the published one for a batch of 4096, scaled by the square root."""
        if self.learning_rate is not None:
            return self.learning_rate
        return PUBLISHED_LEARNING_RATE * math.sqrt(self.train_batch_size / PUBLISHED_BATCH_SIZE)

    @property
    def warmup_steps(self) -> int:
        """The given steps of warm-up, or the published ones, at most a tenth of the run."""
        if self.num_warmup_steps is not None:
            return self.num_warmup_steps
        return min(PUBLISHED_WARMUP_STEPS, self.num_train_steps // 10)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """Flags of albert_tf.convert_checkpoint."""

    source: str = option("Checkpoint: a directory, a file prefix, or a file of it.")
    target: str = option("Directory to write; it must not exist.")
    source_format: str | None = option(
        "native (a run of this project), tf1 or hf (Hugging Face). Unset: what the source is.",
        default=None,
        choices=CHECKPOINT_FORMATS,
    )
    target_format: str | None = option("As --source_format. Unset: native.", default=None, choices=CHECKPOINT_FORMATS)
    label_head: str | None = label_head_option()
    include_optimizer: bool = option("Convert the optimizer's moments too (native and TF1).", default=False)
    allow_missing: str | None = option(
        "Regular expression of the source's names that may be missing or unused. Unset: none.", default=None
    )
