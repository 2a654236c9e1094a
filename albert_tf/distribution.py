"""From flags to a tf.distribute strategy, the precision of the computation, and batch arithmetic."""

import socket
import threading
import urllib.parse
from pathlib import Path

import keras
import tensorflow as tf
from absl import logging

from albert_tf.errors import UserError

_PROBE_SECONDS = 10
_CONNECT_SECONDS = 50


def make_strategy(tpu: str | None) -> tf.distribute.Strategy:
    """Returns TPUStrategy for `--tpu`, MirroredStrategy for several GPUs, and TensorFlow's default for one device.

    A TPU that cannot be reached raises UserError within a minute.
    """
    if tpu is not None:
        return tf.distribute.TPUStrategy(_connect_tpu(tpu))
    if len(tf.config.list_logical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _connect_tpu(tpu: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Connects to and initialises a TPU, with a deadline: TensorFlow itself waits for minutes, or for ever."""
    _probe(tpu)
    outcome: list[tf.distribute.cluster_resolver.TPUClusterResolver | Exception] = []
    thread = threading.Thread(target=_initialize_tpu, args=(tpu, outcome), daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if not outcome:
        raise UserError(f"--tpu={tpu}: no answer within {_CONNECT_SECONDS} seconds; is the TPU running and reachable?")
    if isinstance(outcome[0], Exception):
        reason = str(outcome[0]).strip().splitlines()[0] if str(outcome[0]).strip() else type(outcome[0]).__name__
        raise UserError(
            f"--tpu={tpu}: no TPU could be used ({reason}). On a TPU VM pass --tpu=local with a TensorFlow built for "
            "TPUs (BUILD.md); leave the flag out to train on this machine's GPUs or CPU"
        )
    return outcome[0]


def _initialize_tpu(tpu: str, outcome: list) -> None:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
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


def resolve_precision(precision: str, strategy: tf.distribute.Strategy) -> str:
    """Returns float32 or bfloat16; `auto` means bfloat16 on TPUs, on GPUs from compute capability 8.0, and on CPUs
    with bfloat16 instructions."""
    if precision != "auto":
        return precision
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return "bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability") or (0, 0)
        return "bfloat16" if capability >= (8, 0) else "float32"
    return "bfloat16" if _cpu_has_bfloat16() else "float32"


def _cpu_has_bfloat16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def dtype_policy(precision: str) -> keras.DTypePolicy:
    """Returns the Keras policy: float32 weights, and computation in `precision`."""
    return keras.DTypePolicy("mixed_bfloat16" if precision == "bfloat16" else "float32")


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy, *, flag: str) -> int:
    """Returns the batch of one replica; raises UserError unless replicas divide the global batch."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise UserError(
            f"--{flag} is divided over the replicas and must be a multiple of their number; "
            f"received {batch_size} and {replicas} replicas"
        )
    return batch_size // replicas


def describe(strategy: tf.distribute.Strategy, *, precision: str, per_replica_batch: int) -> None:
    """Logs where and how the run computes."""
    kinds = sorted({device.device_type for device in tf.config.list_logical_devices()} & {"TPU", "GPU"}) or ["CPU"]
    logging.info(
        "Training on %d replica(s) (%s, %s) with %d examples each, computing in %s",
        strategy.num_replicas_in_sync, type(strategy).__name__, "/".join(kinds), per_replica_batch, precision,
    )  # fmt: skip
