import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from albert_tf_data_prep.worker_pool import WorkerKilledError, worker_pool

_PREFIX = ""


def prepare(prefix):
    global _PREFIX
    _PREFIX = prefix


def label(number):
    return f"{_PREFIX}{number}"


def kill_itself(_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def descriptor():
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)


def test_prepared_workers_answer_every_task_and_read_few_ahead(descriptor):
    taken = 0

    def tasks():
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number

    with worker_pool(1, initializer=prepare, arguments=("n",), kept_from_workers=descriptor) as pool:
        results = pool.map_unordered(label, tasks())
        first = list(itertools.islice(results, 3))
        assert taken <= 3 + 2
        assert sorted(first + list(results)) == sorted(f"n{number}" for number in range(40))


def test_a_killed_worker_is_explained(descriptor):
    with (
        pytest.raises(WorkerKilledError, match="a worker process was killed.*fewer --num_workers"),
        worker_pool(1, initializer=prepare, arguments=("",), kept_from_workers=descriptor) as pool,
    ):
        list(pool.map_unordered(kill_itself, [1]))


def test_an_error_ends_the_workers_and_no_other_process(descriptor):
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(100,))
    other.start()
    try:
        with (
            pytest.raises(RuntimeError, match="in the block"),
            worker_pool(1, initializer=prepare, arguments=("",), kept_from_workers=descriptor) as pool,
        ):
            list(pool.map_unordered(label, [1]))
            raise RuntimeError("in the block")
        assert multiprocessing.active_children() == [other] and other.exitcode is None
    finally:
        other.kill()
        other.join()


def test_forked_workers_end_with_their_parent_and_do_not_keep_its_lock(tmp_path):
    """Without TensorFlow in the process, workers are forked; killing the parent must free the directory at once."""
    program = f"""
import fcntl, os, time
from albert_tf_data_prep.worker_pool import worker_pool
lock = os.open({str(tmp_path)!r}, os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
with worker_pool(2, initializer=int, arguments=(), kept_from_workers=lock) as pool:
    for worker in pool.map_unordered(time.sleep, [0.01] * 4 + [100] * 2):
        print("up", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait()
        assert subprocess.run(["flock", "--nonblock", str(tmp_path), "true"]).returncode == 0
        process.stdout.read()  # ends when the last worker has gone
