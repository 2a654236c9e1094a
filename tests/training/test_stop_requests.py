import http.client
import http.server
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT

from albert_tf.training import stop_requests as module
from albert_tf.training.stop_requests import stop_requests


def wait_for(requests):
    deadline = time.monotonic() + 10
    while not requests and time.monotonic() < deadline:
        time.sleep(0.01)
    return requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    with stop_requests(poll_metadata_server=False) as requests:
        os.kill(os.getpid(), number)
        assert wait_for(requests) == [f"signal {number.name}"]
    assert signal.getsignal(number) == before
    assert signal.set_wakeup_fd(-1) == -1


# The main thread is in a call that does not come back to the interpreter, as in a long loop of steps.
BUSY = """
import hashlib
from albert_tf.training.stop_requests import stop_requests
with stop_requests(poll_metadata_server=False) as requests:
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000_000)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_process_that_is_deep_in_a_call(number):
    process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(number)
    try:
        assert process.wait(timeout=10) == 128 + number
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("path", "answer"), [("preempted", "TRUE"), ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")]
)
def test_a_notice_of_preemption_is_a_request(monkeypatch, path, answer):
    asked = []

    class MetadataServer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Metadata-Flavor"]))
            announced = self.path.endswith(path) and len(asked) > 4
            usual = "FALSE" if self.path.endswith("preempted") else "NONE"
            self.send_response(200)
            self.end_headers()
            self.wfile.write((answer if announced else usual).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), MetadataServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
        monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
        with stop_requests(poll_metadata_server=True) as requests:
            assert wait_for(requests) == [f"the machine's notice {path}={answer}"]
        server.shutdown()
    assert set(asked) == {
        ("/computeMetadata/v1/instance/preempted", "Google"),
        ("/computeMetadata/v1/instance/maintenance-event", "Google"),
    }


def watch(monkeypatch, answers):
    """Runs the watcher on these answers (an exception is raised) to its end; returns the requests."""
    left = iter(answers)

    def answer(_):
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(module, "_ask_metadata_server", answer)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
    requests = []
    module._watch_metadata_server(requests, threading.Event())
    return requests


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), http.client.IncompleteRead(b"")], ids=repr)
def test_an_answer_that_fails_between_good_ones_does_not_end_the_polling(monkeypatch, error):
    assert watch(monkeypatch, ["FALSE", "NONE", error, error, "TRUE"]) == ["the machine's notice preempted=TRUE"]


def test_where_there_is_no_metadata_server_the_polling_ends_and_says_so(monkeypatch, caplog):
    with caplog.at_level(logging.INFO, logger="absl"):
        assert watch(monkeypatch, [ConnectionRefusedError("refused")]) == []
    assert "No metadata server answers (refused): preemption notices are not polled" in caplog.text


def test_without_a_metadata_server_the_watching_thread_ends(monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    before = set(threading.enumerate())
    with stop_requests(poll_metadata_server=True) as requests:
        for thread in set(threading.enumerate()) - before:
            if thread.name == "signals":  # ends with the requests
                continue
            thread.join(timeout=10)
            assert not thread.is_alive()
        assert not requests
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()
