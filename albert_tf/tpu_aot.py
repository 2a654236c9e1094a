"""Compiles the real training step for TPUs without a TPU: does it compile, is every shape static, what fits.

    python -m albert_tf.tpu_aot --albert_config_file='configs/albert_base.json,configs/albert_xxlarge.json'

Prints a Markdown table. Needs the extra `tpu-aot` (jax and Google's libtpu). Nothing is executed: numerics and speed
are not checked, nor that a TPU is reached.
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.tpu import TpuAotConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(TpuAotConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: TpuAotConfig) -> None:
    from albert_tf.tpu.tpu_fit import report  # imports TensorFlow: not for --help

    report(config)


if __name__ == "__main__":
    sys.exit(main())
