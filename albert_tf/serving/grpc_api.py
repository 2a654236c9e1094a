"""TensorFlow Serving's gRPC API over a PredictService: Predict, GetModelMetadata and GetModelStatus."""

import concurrent.futures
import math
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from albert_tf.serving.predict_service import PredictService, RequestError, metadata_response, status_response


def make_grpc_server(service: PredictService, *, max_body_bytes: int) -> grpc.Server:
    """Returns a server without a port; messages larger than `max_body_bytes` are refused by gRPC itself."""
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(service.max_present + 4),  # so that a full queue can be told
        options=[("grpc.max_receive_message_length", max_body_bytes), ("grpc.so_reuseport", 0)],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionServicer(service), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelServicer(service), server)
    return server


class _PredictionServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: PredictService) -> None:
        self._service = service

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - a name of the API
        return _answer(context, lambda: self._service.submit(lambda: _predict(self._service, request)).result())

    def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        def metadata() -> Any:
            _check_model(self._service, request.model_spec)
            if list(request.metadata_field) != ["signature_def"]:
                raise RequestError("INVALID_ARGUMENT", "metadata_field must be signature_def")
            return metadata_response(self._service)

        return _answer(context, metadata)


class _ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: PredictService) -> None:
        self._service = service

    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        def status() -> Any:
            _check_model(self._service, request.model_spec)
            return status_response(self._service)

        return _answer(context, status)


def _answer(context: grpc.ServicerContext, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except RequestError as error:
        code, message = getattr(grpc.StatusCode, error.code), str(error)
    except Exception as error:  # its message might hold the text of a request
        logging.error("gRPC request failed: %s", type(error).__name__)
        code, message = grpc.StatusCode.INTERNAL, "an internal error"
    return context.abort(code, message)


def _check_model(service: PredictService, spec: Any) -> None:
    if spec.version_label:
        raise RequestError("NOT_FOUND", "this server knows versions by number, not by label")
    service.check_model(spec.name, spec.version.value if spec.HasField("version") else None)


def _predict(service: PredictService, request: Any) -> predict_pb2.PredictResponse:
    _check_model(service, request.model_spec)
    signature_name = request.model_spec.signature_name or "serving_default"
    outputs = service.signature(signature_name).outputs
    unknown = set(request.output_filter) - set(outputs)
    if unknown:
        raise RequestError("INVALID_ARGUMENT", f"the signature has no output {', '.join(sorted(unknown))}")
    inputs = {name: _to_array(tensor, name) for name, tensor in request.inputs.items()}
    answers = service.predict(signature_name, inputs)
    response = predict_pb2.PredictResponse()
    response.model_spec.name, response.model_spec.signature_name = service.name, signature_name
    response.model_spec.version.value = service.version
    for name in request.output_filter or answers:
        response.outputs[name].CopyFrom(tf.make_tensor_proto(answers[name]))
    return response


def _to_array(tensor: Any, name: str) -> np.ndarray:
    """Returns the array of a TensorProto, which must bring all of its values: one could stand for millions."""
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    is_text = tensor.dtype == tf.string.as_datatype_enum
    if min(sizes, default=0) < 0 or math.prod(sizes) > (len(tensor.string_val) if is_text else tensor.ByteSize()):
        raise RequestError("INVALID_ARGUMENT", f"{name} must have the values of its shape {sizes}")
    try:
        return tf.make_ndarray(tensor)
    except (TypeError, ValueError, KeyError):  # KeyError: of a type that has no array, such as a resource
        raise RequestError("INVALID_ARGUMENT", f"{name} is not a tensor that can be read") from None
