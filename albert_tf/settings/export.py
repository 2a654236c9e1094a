"""What the command export_saved_model can be told."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.settings.options import MIN_SEQ_LENGTH, label_head_option, longest_input_option, option, require

EXPORT_PRECISIONS = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Flags of albert_tf.export_saved_model."""

    checkpoint: str | None = option(
        "What to export: output directory of a run, TF1 checkpoint, Hugging Face directory, or a file in one.",
        default=None,
    )
    label_head: str | None = label_head_option()
    output_dir: str | None = option("Where to write; the SavedModel goes to <output_dir>/<version>.", default=None)
    version: int = option("Version number, as TensorFlow Serving counts them.", default=1)
    max_seq_length: int | None = longest_input_option()
    precision: str = option(
        "Of the graph's weights and computation; answers are float32.", default="float32", choices=EXPORT_PRECISIONS
    )
    check: bool = option("Export nothing; check the export in --saved_model_dir and report.", default=False)
    saved_model_dir: str | None = option(
        "With --check: an export, or a directory of numbered ones, of which the highest is checked.", default=None
    )

    def __post_init__(self) -> None:
        require(self, "version", at_least=0)
        require(self, "max_seq_length", at_least=MIN_SEQ_LENGTH)
        needed = ["saved_model_dir"] if self.check else ["checkpoint", "output_dir"]
        missing = [f"--{name}" for name in needed if not getattr(self, name)]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given {'with' if self.check else 'without'} --check")
