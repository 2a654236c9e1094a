"""Converts checkpoints between this project, TF1 (google-research/albert) and Hugging Face, in all directions.

python -m albert_tf.convert_checkpoint --source=albert_base_v2 --target=runs/albert_base_v2
python -m albert_tf.convert_checkpoint --source=runs/albert_base_v2 --target=albert-hf --target_format=hf
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.conversion import ConvertConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(ConvertConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: ConvertConfig) -> None:
    from albert_tf.checkpoints.converter import convert  # imports TensorFlow: not for --help

    print("\n".join(convert(config)))


if __name__ == "__main__":
    sys.exit(main())
