"""Loads a local server with clients and prints latency, errors and memory.

    python tests/benchmarks/bench_serve.py --saved_model_dir=runs/demo/export/1 --clients=64 --seconds=60

Each client sends one text of random length after the other, half of them over REST and half over gRPC. Everything stays
on the loopback interface.
"""

import argparse
import random
import re
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import serving_clients

TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank and of having nothing to do"
WORDS = TEXT.split()


def main() -> None:
    """Runs the load and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saved_model_dir", required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with serving_clients.serve(options.saved_model_dir) as server:
        _warm_up(server)
        seconds: list[float] = []
        errors: list[str] = []
        end = time.monotonic() + options.seconds
        threads = [
            threading.Thread(target=_client, args=(server, number, end, seconds, errors))
            for number in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        memory = _watch_memory(server.process.pid, end)
        for thread in threads:
            thread.join()
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    half = len(memory) // 2
    print(
        f"{len(seconds)} answers, {len(errors)} errors, {len(seconds) / options.seconds:.0f} a second; "
        f"p50 {p50:.0f} ms, p99 {p99:.0f} ms with {options.clients} clients"
    )
    print(
        f"memory of the server: {memory[0]:.0f} MiB at the start, {max(memory[:half]):.0f} at most in the first half, "
        f"{max(memory[half:]):.0f} in the second"
    )
    for error in sorted(set(errors))[:5]:
        print(error)


def _warm_up(server: serving_clients.RunningServer) -> None:
    for length in (1, 12, 40, 100):
        server.predict(instances=[" ".join((WORDS * 5)[:length])])


def _client(
    server: serving_clients.RunningServer, number: int, end: float, seconds: list[float], errors: list[str]
) -> None:
    rng = random.Random(number)
    while time.monotonic() < end:
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 100)))
        start = time.monotonic()
        try:
            if number % 2:
                server.grpc_predict(text=[text])
            else:
                status, answer = server.predict(instances=[text])
                if status != 200:
                    errors.append(f"HTTP {status}: {answer}")
                    continue
        except Exception as error:  # whatever goes wrong is counted
            errors.append(f"{type(error).__name__}: {error}")
            continue
        seconds.append(time.monotonic() - start)


def _watch_memory(pid: int, end: float) -> list[float]:
    """Returns the resident memory of a process in MiB, every half second."""
    sizes = []
    while time.monotonic() < end:
        status = Path(f"/proc/{pid}/status").read_text()
        sizes.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024)
        time.sleep(0.5)
    return sizes


if __name__ == "__main__":
    main()
