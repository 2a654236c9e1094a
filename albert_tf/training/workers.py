"""Several workers (TF_CONFIG): who they are, whether all can be reached, and decisions that all must take alike."""

import contextlib
import json
import os
import socket
import time
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.errors import UserError

_JOIN_SECONDS = 50.0
_TRY_SECONDS = 2.0
_KINDS = ("chief", "worker")


def workers_of_environment() -> tuple[list[str], int] | None:
    """Returns the addresses of the workers, the chief's first, and this one's index, from TF_CONFIG.

    None where it is unset or names one worker. A malformed one raises UserError.
    """
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return None
    try:
        config = json.loads(text)
        cluster, kind, index = config["cluster"], config["task"]["type"], int(config["task"]["index"])
        if index < 0:
            raise IndexError("a negative index")
        addresses = [address for name in _KINDS for address in cluster.get(name, [])]
        own = addresses.index(cluster[kind][index])
        ports = [int(address.rpartition(":")[2]) for address in addresses]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            'TF_CONFIG must look like {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            f'"index": 0}}}}, the same cluster on every worker; received {text!r} ({error!r})'
        ) from None
    if set(cluster) - set(_KINDS) or len(set(addresses)) < len(ports):
        raise UserError(f"TF_CONFIG may name each address once, as chief or worker; received {text!r}")
    return (addresses, own) if len(addresses) > 1 else None


def make_multi_worker_strategy(addresses: list[str], own: int) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Waits until all workers are there, and joins them; one that stays away raises UserError within a minute."""
    logging.info("Waiting for %d workers: %s", len(addresses), ", ".join(addresses))
    _meet(addresses, own)
    return tf.distribute.MultiWorkerMirroredStrategy()


def _meet(addresses: list[str], own: int) -> None:
    """Listens on this worker's port until every other worker could be connected to.

    TensorFlow would wait for an absent one without end, deaf to SIGTERM. When this returns, TensorFlow's server takes
    the port over, and answers the workers that are still trying.
    """
    deadline = time.monotonic() + _JOIN_SECONDS
    port = int(addresses[own].rpartition(":")[2])
    try:
        listener = socket.create_server(("", port), backlog=len(addresses) * 4)
    except OSError as error:
        raise UserError(
            f"this worker's port {port} (TF_CONFIG: {addresses[own]}) cannot be used ({error.strerror}); "
            "is the run started twice on this machine?"
        ) from None
    with listener:
        for address in addresses[:own] + addresses[own + 1 :]:
            while not _answers(address):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"worker {address} of TF_CONFIG has not joined within {_JOIN_SECONDS:.0f} seconds; start the "
                        "same command on every worker, and check that the address can be reached from this one"
                    )
                time.sleep(0.2)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TRY_SECONDS).close()
        return True
    return False


def is_chief() -> bool:
    """Returns whether this process writes files: the only one, or the first of several workers."""
    workers = workers_of_environment()
    return workers is None or workers[1] == 0


class Agreement:
    """Decisions that depend on signals and clocks, and must be the same on every worker."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        workers = workers_of_environment()
        self._several = workers is not None
        self._replicas_per_worker = strategy.num_replicas_in_sync // (len(workers[0]) if workers else 1)
        self._is_chief = is_chief()
        self._sum = tf.function(self._sum_over_workers, input_signature=[tf.TensorSpec([], tf.int64)])

    def any(self, value: bool) -> bool:
        """Returns whether `value` is true on any worker."""
        return bool(self._total(int(value)))

    def chiefs(self, value: int) -> int:
        """Returns the chief's value."""
        return self._total(value if self._is_chief else 0, of_chief=True)

    def check_equal(self, value: int, *, what: str) -> None:
        """Raises UserError unless all workers have the same value."""
        if self._several and self.any(value != self.chiefs(value)):
            raise UserError(
                f"the workers have different {what}; start the same command on all of them, with the "
                "same --output_dir and records, on storage that they share"
            )

    def _total(self, value: int, *, of_chief: bool = False) -> int:
        if not self._several:
            return value
        total = int(self._sum(tf.constant(value, tf.int64)))
        return total // self._replicas_per_worker if of_chief else total

    def _sum_over_workers(self, value: tf.Tensor) -> Any:
        def replica(value: tf.Tensor) -> tf.Tensor:
            on_device = tf.identity(value)  # all_reduce goes by the device of its argument
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, on_device)

        return self._strategy.experimental_local_results(self._strategy.run(replica, args=(value,)))[0]
