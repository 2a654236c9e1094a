"""Shows pre-training records as text, and checks and measures all of them; the original's records too.

python data_prep/inspect_records.py --input_file='records/train-*.tfrecord'
"""

import sys
from collections.abc import Sequence

from albert_tf.settings.command_line import run_command
from albert_tf.settings.data_preparation import InspectConfig
from albert_tf_data_prep.record_inspection import inspect_records


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 1 where a record breaks the contract or the manifest."""
    return run_command(InspectConfig, inspect_records, description=__doc__ or "", argv=argv)


if __name__ == "__main__":
    sys.exit(main())
