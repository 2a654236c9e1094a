"""What the commands around served models can be told: frozen dataclasses whose fields become the command's flags."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.options import label_head_option, longest_input_option, option, require
from albert_tf.run_config import MIN_SEQ_LENGTH

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Flags of albert_tf.serve."""

    saved_model_dir: str = option("An export, or a directory of numbered ones, of which the highest is served.")
    host: str = option("Address to listen at; the default is for this machine only.", default="127.0.0.1")
    rest_port: int = option("Port of the REST API; 0: any free one.", default=8501)
    port: int = option("Port of the gRPC API; 0: any free one.", default=8500)
    model_name: str = option("Name of the model in requests.", default="albert")
    max_body_bytes: int = option("Longest request.", default=4 * 2**20)
    max_texts: int = option("Most texts, or rows of token ids, in a request.", default=64)
    max_text_bytes: int = option("Longest text.", default=2**17)
    max_queue: int = option("Most requests that wait while others are computed.", default=128)

    def __post_init__(self) -> None:
        for name in ("rest_port", "port"):
            require(self, name, at_least=0, at_most=65535)
        for name in ("max_body_bytes", "max_texts", "max_text_bytes"):
            require(self, name, at_least=1)
        require(self, "max_queue", at_least=0)
