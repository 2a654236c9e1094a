"""Serves an export on this machine with TensorFlow Serving's REST and gRPC APIs, for work without Docker.

python -m albert_tf.serve --saved_model_dir=runs/demo/export
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.serving import ServeConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(ServeConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: ServeConfig) -> None:
    from albert_tf.serving import local_server  # imports TensorFlow: not for --help

    local_server.serve(config)


if __name__ == "__main__":
    sys.exit(main())
