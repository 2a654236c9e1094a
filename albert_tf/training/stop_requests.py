"""Requests to stop a run that can be continued: signals, and on a cloud machine the notice that it will be taken away.

TensorFlow's own preemption handler does nothing on a TPU VM, so the metadata server is asked here.
"""

import contextlib
import http.client
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from absl import logging

_POLL_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
# Path below the metadata server's /instance/, and the answer that announces the end.
_NOTICES = (("preempted", "TRUE"), ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"))


@contextlib.contextmanager
def stop_requests(*, poll_metadata_server: bool) -> Iterator[list[str]]:
    """Yields a list that gets a sentence's subject ("signal SIGTERM") for each request to stop.

    The first SIGINT or SIGTERM is a request; the second one ends the process at once, with status 128 + its number.
    Call it in the main thread.
    """
    requests: list[str] = []
    over = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_watch_signals, args=(reader, requests), name="signals", daemon=True).start()
    if poll_metadata_server:
        watch = threading.Thread(target=_watch_metadata_server, args=(requests, over), name="metadata", daemon=True)
        watch.start()
    handlers: dict[int, Any] = {}
    try:
        # In this order, and back in the reverse one, so that no signal finds the handler without the pipe.
        before = signal.set_wakeup_fd(writer)
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, lambda *_: None)
        try:
            yield requests
        finally:
            for caught, handler in handlers.items():
                signal.signal(caught, handler)
            signal.set_wakeup_fd(before)
    finally:
        over.set()
        os.close(writer)  # the watching thread reads the end


def _watch_signals(reader: int, requests: list[str]) -> None:
    """Turns the numbers of signals, which the interpreter writes as they come, into requests.

    A handler would be called only when the main thread is back from a long call into TensorFlow.
    """
    has_asked = False
    with open(reader, "rb", buffering=0) as numbers:
        while received := numbers.read(1):
            number = received[0]
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            name = signal.Signals(number).name
            if has_asked:
                logging.info("Stopped at once by a second signal, %s; the newest checkpoint is in force", name)
                os._exit(128 + number)
            has_asked = True
            requests.append(f"signal {name}")
            logging.info("Stopping as soon as the work is saved; once more (%s) to stop at once", name)


def _watch_metadata_server(requests: list[str], over: threading.Event) -> None:
    """Asks until the machine's end is announced, `over` is set, or there proves to be no such server.

    One that has answered before is only slow or restarting, and is asked again.
    """
    has_answered = False
    while not over.is_set():
        for path, announcement in _NOTICES:
            try:
                answer = _ask_metadata_server(path)
            except urllib.error.HTTPError:  # it does not know this notice, or is overloaded
                has_answered = True
                continue
            except (OSError, http.client.HTTPException) as error:
                if has_answered:
                    continue
                logging.info("No metadata server answers (%s): preemption notices are not polled", error)
                return
            has_answered = True
            if answer == announcement:
                requests.append(f"the machine's notice {path}={answer}")
                logging.info("Notice of preemption; stopping as soon as the work is saved")
                return
        over.wait(_POLL_SECONDS)


def _ask_metadata_server(path: str) -> str:
    """Returns the metadata server's value; GCE_METADATA_HOST names another server, as in Google's own libraries."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/{path}", headers={"Metadata-Flavor": "Google"}
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as response:
        return response.read().decode("ascii", "replace").strip()
