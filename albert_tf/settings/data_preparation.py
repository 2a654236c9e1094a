"""What the commands of data preparation can be told: raw text, vocabulary, records, inspection."""

import dataclasses
from typing import ClassVar

from albert_tf.errors import UserError
from albert_tf.records.contract import PAIR_TASKS
from albert_tf.settings.options import option
from albert_tf.settings.options import require as _require

INVALID_BYTES = ("refuse", "replace")
DOCUMENT_MODES = ("blank_line", "heading", "file", "line")
SENTENCE_SPLITS = ("line", "prose")
MASKING = ("static", "dynamic")
COLORS = ("auto", "always", "never")
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
