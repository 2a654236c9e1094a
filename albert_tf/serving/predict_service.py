"""What the local server answers, whatever the protocol: predictions within limits, and what the model is."""

import concurrent.futures
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from albert_tf.saved_model.session_loader import SessionModel

Answer = TypeVar("Answer")


_MAX_MESSAGE = 500  # characters: it may quote a name of any length, and gRPC drops a status of more than 8 KiB


class RequestError(Exception):
    """A request that is refused, with a sentence; `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]} ...")
        self.code = code


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may ask, and how many requests may wait."""

    max_texts: int
    max_text_bytes: int
    max_queue: int


class PredictService:
    """One version of one model. Requests are computed by as many threads as there are cores; others wait in a queue."""

    def __init__(self, model: SessionModel, *, name: str, version: int, limits: Limits) -> None:
        self.name = name
        self.version = version
        self.signatures: Mapping[str, Any] = model.signatures
        self.limits = limits
        self._model = model
        self._lock = threading.Lock()
        self._present = 0
        self._workers = len(os.sched_getaffinity(0))
        self._pool = concurrent.futures.ThreadPoolExecutor(self._workers, thread_name_prefix="predict")

    @property
    def max_present(self) -> int:
        """The number of requests that may be computed or wait at once."""
        return self._workers + self.limits.max_queue

    def submit(self, work: Callable[[], Answer]) -> "concurrent.futures.Future[Answer]":
        """Queues the work of a request; raises RequestError where the queue is full."""
        with self._lock:
            if self._present >= self.max_present:
                raise RequestError(
                    "RESOURCE_EXHAUSTED", f"{self._present} requests are waiting already; try again later"
                )
            self._present += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _: Any) -> None:
        with self._lock:
            self._present -= 1

    def check_model(self, name: str, version: int | None) -> None:
        """Raises RequestError unless this is the model and the version that is served."""
        if name != self.name:
            raise RequestError("NOT_FOUND", f"there is no model {name!r}; {self.name!r} is served")
        if version not in (None, self.version):
            raise RequestError("NOT_FOUND", f"model {name!r} has no version {version}; {self.version} is served")

    def signature(self, name: str) -> Any:
        """Returns the SignatureDef of this name, the default one for an empty name; raises RequestError."""
        name = name or "serving_default"
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise RequestError("INVALID_ARGUMENT", f"there is no signature {name!r}; the model has {known}")
        return self.signatures[name]

    def predict(self, signature_name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature; raises RequestError for inputs that do not fit it or the limits.

        Strings are object arrays of bytes.
        """
        signature = self.signature(signature_name)
        self._check_inputs(signature.inputs, inputs)
        try:
            return self._model.run(signature_name or "serving_default", inputs)
        except tf.errors.InvalidArgumentError as error:
            raise RequestError("INVALID_ARGUMENT", _reason(error)) from None

    def _check_inputs(self, expected: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> None:
        if set(inputs) != set(expected):
            raise RequestError(
                "INVALID_ARGUMENT",
                f"the inputs must be {', '.join(sorted(expected))}; received {', '.join(sorted(inputs)) or 'none'}",
            )
        for name, value in inputs.items():
            dtype, rank = tf.as_dtype(expected[name].dtype), len(expected[name].tensor_shape.dim)
            if value.ndim != rank or value.dtype != (object if dtype == tf.string else dtype.as_numpy_dtype):
                raise RequestError(
                    "INVALID_ARGUMENT",
                    f"{name} must be {dtype.name} of rank {rank}; received {value.dtype.name} of shape "
                    f"{list(value.shape)}",
                )
        sizes = {value.shape[0] for value in inputs.values()}
        if len(sizes) > 1:
            raise RequestError("INVALID_ARGUMENT", f"all inputs must have as many rows; received {sorted(sizes)}")
        self._check_limits(inputs)

    def _check_limits(self, inputs: Mapping[str, np.ndarray]) -> None:
        limits = self.limits
        for name, value in inputs.items():
            rows = value.size if value.dtype == object else value.shape[0]
            if not 1 <= rows <= limits.max_texts:
                raise RequestError(
                    "INVALID_ARGUMENT", f"a request takes from 1 to {limits.max_texts} texts; {name} has {rows}"
                )
            for text in value.flat if value.dtype == object else ():
                if len(text) > limits.max_text_bytes:
                    raise RequestError(
                        "INVALID_ARGUMENT",
                        f"a text may be at most {limits.max_text_bytes} bytes long; one of {name} has {len(text)}",
                    )
                try:
                    text.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise RequestError("INVALID_ARGUMENT", f"{name} must be UTF-8; {error.reason}") from None


def status_response(service: PredictService) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns that the version is available."""
    response = get_model_status_pb2.GetModelStatusResponse()
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    response.model_version_status.add(version=service.version, state=available).status.error_code = 0
    return response


def signature_map(service: PredictService) -> get_model_metadata_pb2.SignatureDefMap:
    """Returns the inputs and outputs of every signature."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in service.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    return signatures


def metadata_response(service: PredictService) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Returns name, version and signatures."""
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = service.name
    response.model_spec.version.value = service.version
    response.metadata["signature_def"].Pack(signature_map(service))
    return response


def _reason(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's reason in one line, without the node that it arose in."""
    return error.message.removeprefix("Graph execution error:").split("[[{{")[0].strip().replace("\n", " ")
