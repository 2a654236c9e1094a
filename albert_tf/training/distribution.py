"""From flags to a tf.distribute strategy, and batch arithmetic."""

import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError, first_line
from albert_tf.training.workers import make_multi_worker_strategy, workers_of_environment

_PROBE_SECONDS = 10
_CONNECT_SECONDS = 50


def make_strategy(tpu: str | None, *, zone: str | None = None, project: str | None = None) -> tf.distribute.Strategy:
    """Returns TPUStrategy for `--tpu`, MultiWorkerMirroredStrategy where TF_CONFIG names several workers,
    MirroredStrategy for several GPUs, and TensorFlow's default for one device.

    A TPU or worker that cannot be reached raises UserError within a minute. Call it before any TensorFlow operation.
    """
    workers = workers_of_environment()
    if tpu is not None and workers is not None:
        raise UserError("--tpu and a TF_CONFIG of several workers exclude each other; unset one of them")
    if tpu is not None:
        return tf.distribute.TPUStrategy(_connect_tpu(tpu, zone=zone, project=project))
    if workers is not None:
        return make_multi_worker_strategy(*workers)
    if len(tf.config.list_logical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _connect_tpu(
    tpu: str, *, zone: str | None, project: str | None
) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Connects to and initialises a TPU, with a deadline: TensorFlow itself waits for minutes, or for ever."""
    _probe(tpu)
    outcome: list[tf.distribute.cluster_resolver.TPUClusterResolver | Exception] = []
    thread = threading.Thread(target=_initialize_tpu, args=(tpu, zone, project, outcome), daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if not outcome:
        raise UserError(f"--tpu={tpu}: no answer within {_CONNECT_SECONDS} seconds; is the TPU running and reachable?")
    if isinstance(outcome[0], Exception):
        reason = first_line(outcome[0]).partition(" used by {{node")[0]  # and the operation's attributes
        raise UserError(
            f"--tpu={tpu}: no TPU could be used ({reason}). On a TPU VM pass --tpu=local with a "
            "TensorFlow built for TPUs (BUILD.md); leave the flag out to train on this machine's GPUs or CPU"
        )
    return outcome[0]


def _initialize_tpu(tpu: str, zone: str | None, project: str | None, outcome: list) -> None:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu, zone=zone, project=project)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        outcome.append(resolver)
    except Exception as error:  # whatever TensorFlow, the cloud API or the network raise becomes one sentence
        outcome.append(error)


def _probe(tpu: str) -> None:
    """Opens a TCP connection to each grpc:// address; TensorFlow would wait for an absent one for minutes."""
    for address in tpu.split(","):
        if not address.startswith("grpc://"):
            continue
        try:
            parts = urllib.parse.urlparse(address)
            socket.create_connection((parts.hostname or "", parts.port or 8470), timeout=_PROBE_SECONDS).close()
        except (OSError, ValueError) as error:
            raise UserError(f"--tpu={tpu}: {address} cannot be reached ({error})") from None


def file_device(strategy: tf.distribute.Strategy) -> str | None:
    """Returns the device that reads and writes checkpoints; None means that of each variable.

    The variables of a remote TPU lie on its host, whose disk is not the one that --output_dir means.
    """
    return "/job:localhost" if isinstance(strategy, tf.distribute.TPUStrategy) else None


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy, *, flag: str, parts: int = 1) -> int:
    """Returns the batch of one replica; raises UserError unless replicas (times `parts`) divide the global batch."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * parts):
        accumulated = f" and {parts} --gradient_accumulation_steps" if parts > 1 else ""
        raise UserError(
            f"--{flag} is divided over the replicas and must be a multiple of their number; "
            f"received {batch_size} and {replicas} replicas{accumulated}"
        )
    return batch_size // replicas


def distribute(
    make_dataset: Callable[[slice], tf.data.Dataset], strategy: tf.distribute.Strategy, *, batch_size: int
) -> Iterable[Any]:
    """Returns global batches, spread over the replicas in the order of their rows.

    `make_dataset(rows)` gives these rows of each global batch of `batch_size`. Every worker reads all data and keeps
    its rows; TensorFlow's own sharding would give it other examples than a single worker sees.
    """
    per_replica = batch_size // strategy.num_replicas_in_sync

    def worker_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        share = batch_size // context.num_input_pipelines
        first = context.input_pipeline_id * share
        dataset = make_dataset(slice(first, first + share))
        return dataset if share == per_replica else dataset.rebatch(per_replica, drop_remainder=True)

    return strategy.distribute_datasets_from_function(worker_dataset)


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns where a run computes."""
    kinds = sorted({device.device_type for device in tf.config.list_logical_devices()} & {"TPU", "GPU"}) or ["CPU"]
    return f"{strategy.num_replicas_in_sync} replica(s) on {'/'.join(kinds)} ({type(strategy).__name__})"
