"""Answers every text of a file on this machine's CPU: embeddings, or the labels of a fine-tuned model.

    python -m albert_tf.run_inference --checkpoint=runs/demo/model --input=texts.txt --output=embeddings.npy

The same command goes on where a killed one was. In Python: `albert_tf.load_engine(path).embed(texts)`.
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.inference import InferenceConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(InferenceConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: InferenceConfig) -> None:
    from albert_tf.inference.file_jobs import run_inference  # imports TensorFlow: not for --help

    run_inference(config)


if __name__ == "__main__":
    sys.exit(main())
