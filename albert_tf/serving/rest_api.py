"""TensorFlow Serving's REST API over a PredictService, as an ASGI application.

Requests: https://www.tensorflow.org/tfx/serving/api_rest (row and column form, status, metadata). Text is never logged.
"""

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import json_format

from albert_tf.serving.predict_service import PredictService, RequestError, signature_map, status_response

_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,18}))?(:predict|/metadata)?")
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "TIMEOUT": 408, "TOO_LARGE": 413,
    "RESOURCE_EXHAUSTED": 429,
}  # fmt: skip
_BODY_SECONDS = 60

_Receive = Callable[[], Awaitable[dict[str, Any]]]
_Send = Callable[[dict[str, Any]], Awaitable[None]]


class RestApi:
    """The application; bodies larger than `max_body_bytes` are refused before they are read."""

    def __init__(self, service: PredictService, *, max_body_bytes: int) -> None:
        self._service = service
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: dict[str, Any], receive: _Receive, send: _Send) -> None:
        """Answers one request."""
        status, answer = 500, json.dumps({"error": "an internal error"}).encode()
        try:
            status, answer = 200, await self._answer(scope, receive)
        except RequestError as error:
            status, answer = _HTTP_STATUS[error.code], json.dumps({"error": str(error)}).encode()
        except Exception as error:  # its message might hold the text of a request
            logging.error("REST request failed: %s", type(error).__name__)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        if status in (408, 413):
            headers.append((b"connection", b"close"))  # what follows of the body is not read
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: dict[str, Any], receive: _Receive) -> bytes:
        found = _PATH.fullmatch(scope["path"])
        if not found:
            raise RequestError("NOT_FOUND", "paths are /v1/models/NAME[/versions/N], followed by :predict or /metadata")
        name, version, call = found.groups()
        wanted = "POST" if call == ":predict" else "GET"
        if scope["method"] != wanted:
            raise RequestError("METHOD_NOT_ALLOWED", f"this path takes {wanted}")
        self._service.check_model(name, int(version) if version else None)
        if call == ":predict":
            try:
                body = await asyncio.wait_for(self._read_body(scope, receive), _BODY_SECONDS)
            except TimeoutError:
                raise RequestError("TIMEOUT", f"the body must be sent within {_BODY_SECONDS} seconds") from None
            return await asyncio.wrap_future(self._service.submit(lambda: self._predict(body)))
        return json.dumps(self._metadata() if call else _message(status_response(self._service))).encode()

    def _metadata(self) -> dict[str, Any]:
        spec = {"name": self._service.name, "signature_name": "", "version": str(self._service.version)}
        return {"model_spec": spec, "metadata": {"signature_def": _message(signature_map(self._service))}}

    async def _read_body(self, scope: dict[str, Any], receive: _Receive) -> bytes:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        body, more = bytearray(), True
        while more:
            if max(len(body), int(declared)) > self._max_body_bytes:
                raise RequestError("TOO_LARGE", f"the body may be at most {self._max_body_bytes} bytes long")
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError("INVALID_ARGUMENT", "the client has gone")
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > self._max_body_bytes:
            raise RequestError("TOO_LARGE", f"the body may be at most {self._max_body_bytes} bytes long")
        return bytes(body)

    def _predict(self, body: bytes) -> bytes:
        request = _parse(body)
        signature_name = request.get("signature_name", "")
        if not isinstance(signature_name, str):
            raise RequestError("INVALID_ARGUMENT", "signature_name must be a string")
        expected = self._service.signature(signature_name).inputs
        if ("instances" in request) == ("inputs" in request):
            raise RequestError("INVALID_ARGUMENT", "the body must have either 'instances' (rows) or 'inputs' (columns)")
        is_row = "instances" in request
        columns = _columns_of_rows(request["instances"], expected) if is_row else _columns(request["inputs"], expected)
        inputs = {name: _to_array(value, expected.get(name), name) for name, value in columns.items()}
        outputs = {name: _to_json(value) for name, value in self._service.predict(signature_name, inputs).items()}
        if not is_row:
            return json.dumps({"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}).encode()
        rows = zip(*outputs.values(), strict=True)
        predictions = [dict(zip(outputs, row, strict=True)) if len(outputs) > 1 else row[0] for row in rows]
        return json.dumps({"predictions": predictions}).encode()


def _message(message: Any) -> dict[str, Any]:
    """Returns a protocol buffer in TensorFlow Serving's JSON, which leaves no field out."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _parse(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except UnicodeDecodeError:
        raise RequestError("INVALID_ARGUMENT", "the body must be JSON in UTF-8; it has other bytes") from None
    except json.JSONDecodeError as error:
        raise RequestError("INVALID_ARGUMENT", f"the body must be JSON; {error.msg} at {error.pos}") from None
    except RecursionError:
        raise RequestError("INVALID_ARGUMENT", "the body must be JSON; it is nested too deep") from None
    except ValueError:  # Python's limit
        raise RequestError("INVALID_ARGUMENT", "the body must be JSON; a number has too many digits") from None
    if not isinstance(request, dict):
        raise RequestError("INVALID_ARGUMENT", "the body must be a JSON object")
    return request


def _columns_of_rows(rows: Any, expected: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the columns of `instances`: objects, or bare values where the signature has one input."""
    if not isinstance(rows, list) or not rows:
        raise RequestError("INVALID_ARGUMENT", "'instances' must be a list of at least one instance")
    if all(isinstance(row, dict) and "b64" not in row for row in rows):
        for row in rows:
            if set(row) != set(expected):
                raise RequestError(
                    "INVALID_ARGUMENT", f"each instance must have the keys {', '.join(sorted(expected))}"
                )
        return {name: [row[name] for row in rows] for name in expected}
    if len(expected) > 1:
        raise RequestError("INVALID_ARGUMENT", f"instances must be objects with the keys {', '.join(sorted(expected))}")
    return dict.fromkeys(expected, rows)


def _columns(inputs: Any, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of `inputs`: an object, or a list where the signature has one input."""
    if isinstance(inputs, dict):
        return inputs
    if len(expected) > 1:
        raise RequestError(
            "INVALID_ARGUMENT", f"'inputs' must be an object with the keys {', '.join(sorted(expected))}"
        )
    return dict.fromkeys(expected, inputs)


def _to_array(value: Any, expected: Any, name: str) -> np.ndarray:
    """Returns the array of nested lists of strings or whole numbers."""
    if expected is None:
        raise RequestError("INVALID_ARGUMENT", f"the signature has no input {name!r}")
    shape: list[int] = []
    inner, rank = value, len(expected.tensor_shape.dim)
    while isinstance(inner, list) and len(shape) <= rank:
        shape.append(len(inner))
        inner = inner[0] if inner else None
    if len(shape) != rank:
        raise RequestError("INVALID_ARGUMENT", f"{name} must be lists nested {rank} deep, the outermost for the rows")
    is_text = expected.dtype == tf.string.as_datatype_enum
    leaves = [(_text if is_text else _number)(leaf, name) for leaf in _leaves(value, shape, name)]
    return np.array(leaves, dtype=object if is_text else tf.as_dtype(expected.dtype).as_numpy_dtype).reshape(shape)


def _leaves(value: Any, shape: list[int], name: str) -> Iterator[Any]:
    if not shape:
        if isinstance(value, list):
            raise RequestError("INVALID_ARGUMENT", f"{name} must be nested equally deep everywhere")
        yield value
        return
    if not isinstance(value, list) or len(value) != shape[0]:
        raise RequestError("INVALID_ARGUMENT", f"{name} must have rows of equal length")
    for inner in value:
        yield from _leaves(inner, shape[1:], name)


def _text(leaf: Any, name: str) -> bytes:
    try:
        if isinstance(leaf, dict) and set(leaf) == {"b64"} and isinstance(leaf["b64"], str):
            return base64.b64decode(leaf["b64"], validate=True)
        if isinstance(leaf, str):
            return leaf.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(
            "INVALID_ARGUMENT", f"{name} must be Unicode text; it has half of a surrogate pair"
        ) from None
    except ValueError:  # binascii's own, or of characters that are not ASCII
        raise RequestError("INVALID_ARGUMENT", f"{name}: b64 must be base64") from None
    raise RequestError("INVALID_ARGUMENT", f"{name} must hold strings; received {_json_type(leaf)}")


def _number(leaf: Any, name: str) -> int:
    if isinstance(leaf, bool) or not isinstance(leaf, int) or not -(2**31) <= leaf < 2**31:
        raise RequestError(
            "INVALID_ARGUMENT", f"{name} must hold whole numbers of 32 bits; received {_json_type(leaf)}"
        )
    return leaf


def _json_type(leaf: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}.get(
        type(leaf), "another number"
    )


def _to_json(value: np.ndarray) -> list[Any]:
    if value.dtype != object:
        return value.tolist()
    texts = [text.decode("utf-8", errors="replace") for text in value.flat]
    return np.array(texts, dtype=object).reshape(value.shape).tolist()
