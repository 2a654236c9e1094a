"""Pre-trains ALBERT on TFRecords, or continues the run that it finds in --output_dir.

    python -m albert_tf.run_pretraining --albert_config_file=configs/albert_base.json \\
        --input_file='records/train-*.tfrecord' --output_dir=runs/base [--tpu=local]
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import log_settings, run_command
from albert_tf.settings.pretraining import PretrainConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(PretrainConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: PretrainConfig) -> int:
    log_settings(config)
    from albert_tf.pretraining.pretraining_run import pretrain  # imports TensorFlow: not for --help

    return pretrain(config)


if __name__ == "__main__":
    sys.exit(main())
