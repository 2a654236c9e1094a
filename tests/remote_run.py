"""Pre-trains with weights, data and steps on another process, as those of a TPU with a host of its own would be.

    python tests/remote_run.py ADDRESS '{"output_dir": "run", ...}'

ADDRESS is that of a tf.distribute.Server of the job `worker`.
"""

import json
import sys

import tensorflow as tf

from albert_tf.pretraining.pretraining_run import pretrain
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training import distribution


class RemoteStrategy(tf.distribute.OneDeviceStrategy):
    """Stands for a TPUStrategy of a remote TPU."""


def main(address, settings):
    tf.config.experimental_connect_to_host(address, job_name="worker")
    strategy = RemoteStrategy("/job:worker/task:0/device:CPU:0")
    distribution.make_strategy = lambda *_, **__: strategy
    tf.distribute.TPUStrategy = RemoteStrategy
    return pretrain(PretrainConfig(**settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
