import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from albert_tf.serving.grpc_api import make_grpc_server
from albert_tf.serving.predict_service import Limits, PredictService


@pytest.fixture(scope="module")
def channel(session_model):
    limits = Limits(max_texts=8, max_text_bytes=1000, max_queue=2)
    service = PredictService(session_model, name="albert", version=3, limits=limits)
    server = make_grpc_server(service, max_body_bytes=20_000)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(0).wait()


def predict(channel, *, name="albert", signature_name="", version=None, output_filter=(), **inputs):
    request = predict_pb2.PredictRequest(output_filter=output_filter)
    request.model_spec.name, request.model_spec.signature_name = name, signature_name
    if version is not None:
        request.model_spec.version.value = version
    for key, value in inputs.items():
        proto = value if isinstance(value, TensorProto) else tf.make_tensor_proto(value)
        request.inputs[key].CopyFrom(proto)
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=30)
    return response, {key: tf.make_ndarray(tensor) for key, tensor in response.outputs.items()}


def test_predict_gives_the_models_answers(channel, session_model):
    texts = ["Alice", "Été", ""]
    response, answers = predict(channel, text=texts, version=3)
    expected = session_model.run("serving_default", {"text": np.array(texts)})
    assert all(np.array_equal(answers[name], expected[name]) for name in expected)
    assert (response.model_spec.version.value, response.model_spec.signature_name) == (3, "serving_default")


def test_outputs_can_be_chosen(channel):
    _, answers = predict(channel, text=["Alice"], output_filter=["mean_embedding"])
    assert set(answers) == {"mean_embedding"}


def one_value_for_many():
    proto = tf.make_tensor_proto(["a"])
    proto.tensor_shape.dim[0].size = 10**9
    return proto


def a_resource():
    return TensorProto(dtype=tf.resource.as_datatype_enum, string_val=[b"a"])


def values_left_out():
    proto = tf.make_tensor_proto(["a", "b"])
    del proto.string_val[:]
    return proto


@pytest.mark.parametrize(
    ("request_parts", "code", "message"),
    [
        ({"text": ["a"], "name": "bert"}, "NOT_FOUND", "no model 'bert'"),
        ({"text": ["a"], "version": 4}, "NOT_FOUND", "no version 4"),
        ({"text": ["a"], "signature_name": "no"}, "INVALID_ARGUMENT", "no signature 'no'"),
        ({"text": ["a"], "output_filter": ["no"]}, "INVALID_ARGUMENT", "no output no"),
        ({}, "INVALID_ARGUMENT", "the inputs must be text"),
        ({"text": [1]}, "INVALID_ARGUMENT", "text must be string"),
        ({"text": "a"}, "INVALID_ARGUMENT", "of rank 1"),
        ({"text": np.array([], object)}, "INVALID_ARGUMENT", "from 1 to 8 texts"),
        ({"text": ["a"] * 9}, "INVALID_ARGUMENT", "from 1 to 8 texts"),
        ({"text": [b"\xff"]}, "INVALID_ARGUMENT", "must be UTF-8"),
        ({"text": ["a" * 1001]}, "INVALID_ARGUMENT", "1000 bytes long"),
        ({"text": ["a" * 30_000]}, "RESOURCE_EXHAUSTED", "message larger than max"),
        ({"text": one_value_for_many()}, "INVALID_ARGUMENT", "the values of its shape"),
        ({"text": values_left_out()}, "INVALID_ARGUMENT", "the values of its shape"),
        ({"text": a_resource()}, "INVALID_ARGUMENT", "not a tensor that can be read"),
        ({"text": ["a"], "signature_name": "x" * 15_000}, "INVALID_ARGUMENT", "x ..."),
    ],
)
def test_bad_requests_get_a_status_with_a_sentence(channel, request_parts, code, message):
    with pytest.raises(grpc.RpcError) as caught:
        predict(channel, **request_parts)
    assert caught.value.code().name == code
    assert message in caught.value.details()


def test_status_and_metadata_are_told(channel):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "albert"
    status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=30)
    assert status.model_version_status[0].version == 3
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "albert"
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    assert "signature_def" in stub.GetModelMetadata(request, timeout=30).metadata
    request.metadata_field[:] = ["other"]
    with pytest.raises(grpc.RpcError, match="must be signature_def"):
        stub.GetModelMetadata(request, timeout=30)
