"""What the command convert_checkpoint can be told."""

import dataclasses

from albert_tf.settings.options import label_head_option, option

CHECKPOINT_FORMATS = ("native", "tf1", "hf")


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
