"""What the command run_inference can be told."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.settings.options import PRECISIONS, label_head_option, longest_input_option, option
from albert_tf.text.row_reader import ROW_FORMATS

ANSWERS = ("pooled_embedding", "mean_embedding", "cls_embedding", "sequence_classification", "token_classification",
           "sentence_order")  # fmt: skip
LONG_TEXTS = ("refuse", "cut", "skip")
BAD_ROWS = ("refuse", "skip")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """Flags of albert_tf.run_inference."""

    input: str = option("Texts: a file of lines, TSV or CSV with a header, or JSON lines.")
    output: str = option("Where to write the answers, in the order of the input: a .jsonl, .tsv or .npy file.")
    checkpoint: str | None = option(
        "Model: output directory of a run, TF1 checkpoint, Hugging Face directory, or a file in one.", default=None
    )
    saved_model_dir: str | None = option(
        "Instead of --checkpoint: an export, or a directory of numbered ones, of which the highest is taken.",
        default=None,
    )
    label_head: str | None = label_head_option()
    answer: str = option("What to compute for each text.", default="pooled_embedding", choices=ANSWERS)
    input_format: str | None = option("Unset: by the name of the file.", default=None, choices=ROW_FORMATS)
    text_column: str = option("Column, or key of the JSON objects, that holds the text.", default="text", url=True)
    pair_column: str | None = option("Column or key of the second text of a pair.", default=None, url=True)
    max_seq_length: int | None = longest_input_option()
    long_texts: str = option(
        "What to do with a text that is longer: stop with its line, cut its end, or leave it out; cut and left-out "
        "texts are counted.",
        default="refuse",
        choices=LONG_TEXTS,
    )
    bad_rows: str = option(
        "What to do with a row that cannot be read or whose text is empty: stop with its line, or leave it out "
        "(a row of NaN in .npy) and count it.",
        default="refuse",
        choices=BAD_ROWS,
    )
    precision: str = option(
        "Of the computation; auto: bfloat16 where the hardware has it. An export has its own.",
        default="auto",
        choices=PRECISIONS,
    )

    def __post_init__(self) -> None:
        if bool(self.checkpoint) == bool(self.saved_model_dir):
            raise UserError("one of --checkpoint and --saved_model_dir must be given, and not both")
