"""Makes TFRecords for pre-training from raw text: segment pairs, half of them in swapped order, with n-gram masks.

    python data_prep/create_pretraining_data.py --input_file='books/*.txt' \\
        --spm_model_file=vocab/spiece.model --output_dir=records
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep.dry_run import preview_records
from albert_tf_data_prep.pretraining_records import create_records


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return run_command(RecordsConfig, _run, description=__doc__ or "", argv=argv)


def _run(config: RecordsConfig) -> None:
    if config.dry_run:
        print("\n".join(preview_records(config)))
    else:
        create_records(config)


if __name__ == "__main__":
    sys.exit(main())
