"""A server on this machine: both APIs of TensorFlow Serving over one export, until it is told to stop."""

import errno
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import uvicorn
from absl import logging

from albert_tf.errors import UserError
from albert_tf.saved_model.export_directory import read_export_manifest, version_directory
from albert_tf.saved_model.served_graph import load_saved_model
from albert_tf.serving.grpc_api import make_grpc_server
from albert_tf.serving.predict_service import Limits, PredictService
from albert_tf.serving.rest_api import RestApi
from albert_tf.settings.serving import ServeConfig

_DRAIN_SECONDS = 30  # for what is being computed when the server is told to stop


def serve(config: ServeConfig) -> None:
    """Serves until SIGTERM or Ctrl-C; then answers what it has accepted, and returns."""
    directory = version_directory(Path(config.saved_model_dir))
    version = read_export_manifest(directory)["model_version"]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _bound_socket(config) as rest_socket:
        limits = Limits(max_texts=config.max_texts, max_text_bytes=config.max_text_bytes, max_queue=config.max_queue)
        logging.info("Loading %s", directory)
        service = PredictService(load_saved_model(directory), name=config.model_name, version=version, limits=limits)
        grpc_server = make_grpc_server(service, max_body_bytes=config.max_body_bytes)
        port = _bind_grpc(grpc_server, config)
        rest_server = uvicorn.Server(_rest_settings(service, config))
        rest_thread = threading.Thread(target=rest_server.run, kwargs={"sockets": [rest_socket]}, daemon=True)
        rest_thread.start()
        grpc_server.start()
        logging.info(
            "Serving version %d: REST http://%s:%d/v1/models/%s:predict and gRPC %s:%d",
            version, config.host, rest_socket.getsockname()[1], config.model_name, config.host, port,
        )  # fmt: skip
        stop.wait()
        logging.info("Stopping: answering what was accepted")
        rest_server.should_exit = True
        grpc_server.stop(_DRAIN_SECONDS).wait()
        rest_thread.join()


def _rest_settings(service: PredictService, config: ServeConfig) -> uvicorn.Config:
    return uvicorn.Config(
        RestApi(service, max_body_bytes=config.max_body_bytes),
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )


@contextmanager
def _bound_socket(config: ServeConfig) -> Iterator[socket.socket]:
    try:
        bound = socket.create_server((config.host, config.rest_port), backlog=512)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise UserError(f"--host={config.host} is no address of this machine ({error.strerror})") from None
        raise UserError(f"--rest_port={config.rest_port} of {config.host} is not free ({error.strerror})") from None
    with bound:
        yield bound


def _bind_grpc(server: grpc.Server, config: ServeConfig) -> int:
    try:
        return server.add_insecure_port(f"{config.host}:{config.port}")
    except RuntimeError:
        raise UserError(f"--port={config.port} of {config.host} is not free") from None
