"""Exports a checkpoint of run_pretraining as a SavedModel that TF Serving runs on plain text.

python -m albert_tf.export_saved_model --checkpoint=runs/demo/model --output_dir=export --version=1
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from albert_tf.command_line import run_command
from albert_tf.run_config import ExportConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(ExportConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: ExportConfig) -> None:
    from albert_tf.export import ExportSource, export_saved_model  # imports TensorFlow: not for --help

    source = ExportSource.load(config.checkpoint)
    export_saved_model(
        source, output_dir=Path(config.output_dir), version=config.version, max_seq_length=config.max_seq_length
    )


if __name__ == "__main__":
    sys.exit(main())
