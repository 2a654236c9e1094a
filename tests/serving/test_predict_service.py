import threading
from types import SimpleNamespace

import numpy as np
import pytest
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import get_model_metadata_pb2

from albert_tf.serving.predict_service import Limits, PredictService, RequestError, metadata_response, status_response

LIMITS = Limits(max_texts=4, max_text_bytes=100, max_queue=2)


@pytest.fixture
def service(session_model):
    return PredictService(session_model, name="albert", version=3, limits=LIMITS)


def texts(*values):
    return {"text": np.array(values, dtype=object)}


def test_answers_are_the_models(service, session_model):
    answers = service.predict("", texts(b"Alice"))
    expected = session_model.run("serving_default", texts(b"Alice"))
    assert all(np.array_equal(answers[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("signature_name", "inputs", "message"),
    [
        ("no", texts(b"a"), "there is no signature 'no'; the model has embeddings, mlm"),
        ("", {}, "the inputs must be text; received none"),
        ("", {**texts(b"a"), "more": texts(b"a")["text"]}, "the inputs must be text; received more, text"),
        ("", texts(), "from 1 to 4 texts; text has 0"),
        ("", texts(*[b"a"] * 5), "from 1 to 4 texts; text has 5"),
        ("", texts(b"a" * 101), "a text may be at most 100 bytes long; one of text has 101"),
        ("", texts(b"good \xff bad"), "text must be UTF-8"),
        ("", {"text": np.array([1, 2], np.int32)}, r"text must be string of rank 1; received int32 of shape \[2\]"),
        ("", {"text": np.array([[b"a"]], object)}, "text must be string of rank 1"),
        ("sop", {**texts(b"a", b"b"), "text_pair": texts(b"a")["text"]}, r"as many rows; received \[1, 2\]"),
    ],
)
def test_requests_that_do_not_fit_are_refused(service, signature_name, inputs, message):
    with pytest.raises(RequestError, match=message) as caught:
        service.predict(signature_name, inputs)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(("length", "first", "message"), [(65, 7, "may not be longer"), (4, 10**6, "1000000")])
def test_the_graphs_own_refusals_become_sentences(service, length, first, message):
    ids = np.full((1, length), 7, np.int32)
    ids[0, 0] = first
    inputs = {"input_ids": ids, "segment_ids": 0 * ids, "lengths": np.array([4], np.int32)}
    with pytest.raises(RequestError, match=message) as caught:
        service.predict("tokens", inputs)
    assert "\n" not in str(caught.value)


def test_models_and_versions_that_are_not_served_are_not_found(service):
    service.check_model("albert", None)
    service.check_model("albert", 3)
    for name, version in (("bert", None), ("albert", 4)):
        with pytest.raises(RequestError) as caught:
            service.check_model(name, version)
        assert caught.value.code == "NOT_FOUND"


def test_a_full_queue_refuses_and_takes_again_when_it_has_room():
    service = PredictService(SimpleNamespace(signatures={}), name="a", version=1, limits=LIMITS)
    gate = threading.Event()
    futures = [service.submit(gate.wait) for _ in range(service.max_present)]
    with pytest.raises(RequestError, match="are waiting already") as caught:
        service.submit(gate.wait)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    gate.set()
    assert all(future.result(timeout=10) for future in futures)
    for future in [service.submit(lambda: 7) for _ in range(2)]:
        assert future.result(timeout=10) == 7


SERVICE = SimpleNamespace(name="albert", version=7, signatures={"sop": SignatureDef(method_name="predict")})


def test_the_version_is_available():
    status = status_response(SERVICE).model_version_status[0]
    assert (status.version, status.state, status.status.error_code) == (7, 30, 0)  # AVAILABLE is 30


def test_metadata_holds_the_signatures():
    response = metadata_response(SERVICE)
    assert (response.model_spec.name, response.model_spec.version.value) == ("albert", 7)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["sop"].method_name == "predict"
