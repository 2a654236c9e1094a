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

    The first SIGINT or SIGTERM is a request; a second one acts at once.
    """
    requests: list[str] = []
    previous: dict[int, Any] = {}
    over = threading.Event()

    def remember(number: int, _: Any) -> None:
        requests.append(f"signal {signal.Signals(number).name}")
        signal.signal(number, previous[number])
        logging.info("Stopping after this loop, with a checkpoint; once more to stop at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, remember)
    if poll_metadata_server:
        threading.Thread(target=_watch_metadata_server, args=(requests, over), daemon=True).start()
    try:
        yield requests
    finally:
        over.set()
        for caught, handler in previous.items():
            signal.signal(caught, handler)


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
                logging.info("Notice of preemption; stopping after this loop, with a checkpoint")
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
