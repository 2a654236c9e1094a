"""The same client tests against `albert_tf.serve` and TensorFlow Serving, in processes of their own."""

import concurrent.futures
import signal

import grpc
import numpy as np
import pytest
import serving_clients
from commands import assert_one_sentence, run


@pytest.fixture(scope="module", params=["serve", "tensorflow_model_server"])
def server(request, exported):
    if request.param == "serve":
        with serving_clients.serve(exported) as running:
            yield running
        return
    if serving_clients.TF_SERVING is None:
        pytest.skip(serving_clients.TF_SERVING_MISSING)
    with serving_clients.tensorflow_model_server(exported.parent) as running:
        yield running


def test_rest_and_grpc_give_the_models_answers(server, session_model):
    texts = ["Alice was beginning to get very tired.", "", "Été 2,500!"]
    expected = session_model.run("serving_default", {"text": np.array(texts)})
    status, rows = server.predict(instances=texts)
    assert status == 200
    status, columns = server.predict(inputs={"text": texts})
    assert status == 200
    messages = server.grpc_predict(text=texts)
    for name, value in expected.items():
        assert np.abs(np.array([row[name] for row in rows["predictions"]]) - value).max() < 1e-5
        assert np.abs(np.array(columns["outputs"][name]) - value).max() < 1e-5
        assert np.abs(messages[name] - value).max() < 1e-5


def test_other_signatures_are_called_by_name(server):
    status, answer = server.predict(signature_name="mlm", instances=["Alice was [MASK]."])
    assert status == 200
    assert len(answer["predictions"][0]["top_pieces"][0]) == 10
    pair = {"text": "Alice ran.", "text_pair": "The Rabbit ran."}
    status, answer = server.predict(signature_name="sop", instances=[pair])
    assert 0 < answer["predictions"][0]["in_order_probability"] < 1


def test_status_and_metadata_are_told(server):
    status, answer = server.get("/v1/models/albert")
    assert (status, answer["model_version_status"][0]["state"]) == (200, "AVAILABLE")
    status, answer = server.get("/v1/models/albert/metadata")
    assert "embeddings" in answer["metadata"]["signature_def"]["signature_def"]


BAD_BODIES = (
    b"{",
    b'{"instances": ["\xff"]}',
    {"instances": []},
    {"instances": [7]},
    {"instances": ["a"], "signature_name": "no"},
)


@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_requests_are_refused_and_the_server_goes_on(server, body):
    status, answer = server.post("/v1/models/albert:predict", body)
    assert 400 <= status < 500
    assert answer["error"]
    assert server.predict(instances=["Alice"])[0] == 200


def test_versions_and_models_that_are_not_there_are_not_found(server):
    assert server.post("/v1/models/albert/versions/99:predict", {"instances": ["a"]})[0] == 404
    assert server.post("/v1/models/bert:predict", {"instances": ["a"]})[0] == 404
    with pytest.raises(grpc.RpcError):
        server.grpc_predict(signature_name="no", text=["a"])


def test_large_requests_are_refused_and_told_how_large_they_may_be(exported, server):
    if "albert_tf.serve" not in " ".join(server.process.args):
        pytest.skip("TensorFlow Serving has no such limits")
    status, answer = server.predict(instances=["a" * 2**20])
    assert (status, "131072 bytes long" in answer["error"]) == (400, True)
    status, answer = server.predict(instances=["a"] * 10_000)
    assert (status, "from 1 to 64 texts" in answer["error"]) == (400, True)


def test_a_server_that_is_told_to_stop_answers_what_it_has_accepted(exported):
    secret = "a text that nobody should find in a log"
    with serving_clients.serve(exported.parent, "--max_queue=4") as server:
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            asked = [pool.submit(server.predict, instances=[f"{secret} {i} " * 500] * 40) for i in range(24)]
            concurrent.futures.wait(asked, return_when=concurrent.futures.FIRST_COMPLETED)
            server.process.send_signal(signal.SIGTERM)
            answers = [future.exception() or future.result() for future in asked]
        assert server.process.wait(timeout=30) == 0
    statuses = [answer[0] for answer in answers if isinstance(answer, tuple)]
    assert set(statuses) <= {200, 429}
    assert {200, 429} <= set(statuses)
    assert "Stopping" in "".join(server.log)
    assert secret not in "".join(server.log)


def test_mistakes_end_in_one_sentence(tmp_path):
    assert_one_sentence(
        run("-m", "albert_tf.serve", f"--saved_model_dir={tmp_path}"), "is not an export and holds none"
    )
