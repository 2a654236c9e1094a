"""Worker processes: started cheaply, deaf to the interrupt key, ended with their parent, fed a few tasks ahead."""

import concurrent.futures.process
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from albert_tf.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerKilledError(UserError):
    """A worker died; the work that was finished before is kept."""


class WorkerPool:
    """Runs functions in the processes of a `worker_pool`."""

    def __init__(self, executor: concurrent.futures.Executor, workers: int) -> None:
        self._executor = executor
        self._in_flight = 2 * workers

    def map_unordered(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yields results as they come, and takes few tasks ahead of them."""
        pending: set[concurrent.futures.Future[Result]] = set()
        for task in tasks:
            with _interrupt_blocked():  # processes are started here, and inherit what is blocked
                pending.add(self._executor.submit(function, task))
            if len(pending) >= self._in_flight:
                done, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in concurrent.futures.as_completed(pending))


@contextlib.contextmanager
def worker_pool(
    workers: int, *, initializer: Callable[..., None], arguments: Sequence[Any], kept_from_workers: int
) -> Iterator[WorkerPool]:
    """Keeps `workers` processes, each prepared by `initializer(*arguments)`, as long as the block runs.

    The descriptor `kept_from_workers` is not theirs. A worker that is killed raises WorkerKilledError; any error in the
    block ends the processes at once.
    """
    # A forked process is ready at once, where a spawned one imports everything again; but TensorFlow does not survive
    # a fork, and is loaded where text comes from the cloud or TFDS.
    method = "spawn" if "tensorflow" in sys.modules else "fork"
    descriptor = kept_from_workers if method == "fork" else None
    executor = concurrent.futures.ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context(method),
        initializer=_start_worker,
        initargs=(descriptor, initializer, arguments),
    )
    try:
        with _interrupt_blocked():
            executor.submit(os.getpid)  # forks now, before this process has other threads
        yield WorkerPool(executor, workers)
    except concurrent.futures.process.BrokenProcessPool:
        raise WorkerKilledError(
            "a worker process was killed, as the system does when memory runs out; repeat the command with fewer "
            "--num_workers to go on"
        ) from None
    except BaseException:
        for process in list((executor._processes or {}).values()):
            process.terminate()  # a task could take minutes
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _start_worker(descriptor: int | None, initializer: Callable[..., None], arguments: Sequence[Any]) -> None:
    """Prepares a worker process, which ends with its parent, however that ends."""
    if descriptor is not None:
        os.close(descriptor)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    initializer(*arguments)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _interrupt_blocked() -> Iterator[None]:
    """Starts processes that never see the interrupt key, which is this process's to act on."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
