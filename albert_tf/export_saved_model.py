"""Exports a checkpoint as a SavedModel that TensorFlow Serving runs on plain text, or checks an export.

python -m albert_tf.export_saved_model --checkpoint=runs/demo/model --output_dir=export --version=1
python -m albert_tf.export_saved_model --check --saved_model_dir=export/1
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.export import ExportConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(ExportConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: ExportConfig) -> None:
    from albert_tf.export.saved_model_writer import export_or_check  # imports TensorFlow: not for --help

    export_or_check(config)


if __name__ == "__main__":
    sys.exit(main())
