"""Trains a SentencePiece vocabulary with ALBERT's special pieces at ALBERT's ids, from raw text.

python data_prep/train_vocab.py --input_file='books/*.txt' --output_dir=vocab
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.data_preparation import VocabConfig
from albert_tf_data_prep.vocabulary import train_vocabulary


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(VocabConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: VocabConfig) -> None:
    train_vocabulary(config)


if __name__ == "__main__":
    sys.exit(main())
