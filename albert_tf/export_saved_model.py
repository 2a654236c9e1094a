"""Exports a checkpoint as a SavedModel that TensorFlow Serving runs on plain text, or checks an export.

python -m albert_tf.export_saved_model --checkpoint=runs/demo/model --output_dir=export --version=1
python -m albert_tf.export_saved_model --check --saved_model_dir=export/1
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from albert_tf.command_line import run_command
from albert_tf.serving_config import ExportConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(ExportConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: ExportConfig) -> None:
    from albert_tf import export, loading  # import TensorFlow: not for --help

    if config.check:
        print("\n".join(export.check_export(Path(config.saved_model_dir or "")).lines()))
        return
    export.export_saved_model(
        loading.open_checkpoint(config.checkpoint or "", label_head=config.label_head),
        output_dir=Path(config.output_dir or ""),
        version=config.version,
        max_seq_length=config.max_seq_length,
        precision=config.precision,
    )


if __name__ == "__main__":
    sys.exit(main())
