import asyncio
import base64
import json

import numpy as np
import pytest

from albert_tf.serving import rest_api
from albert_tf.serving.predict_service import Limits, PredictService
from albert_tf.serving.rest_api import RestApi

PREDICT = "/v1/models/albert:predict"


@pytest.fixture(scope="module")
def api(session_model):
    limits = Limits(max_texts=8, max_text_bytes=1000, max_queue=2)
    service = PredictService(session_model, name="albert", version=3, limits=limits)
    return RestApi(service, max_body_bytes=20_000)


def call(api, path, body=None, *, method=None, headers=()):
    """Returns HTTP status and answer; a body may be bytes, or anything that JSON can say."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = [data[i : i + 5000] for i in range(0, len(data), 5000)]
    sent = []

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    method = method or ("GET" if body is None else "POST")
    asyncio.run(api({"path": path, "method": method, "headers": list(headers)}, receive, send))
    assert dict(sent[0]["headers"])[b"content-type"] == b"application/json"
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_rows_and_columns_have_the_same_answers(api, session_model):
    texts = ["Alice", "the Rabbit"]
    expected = session_model.run("serving_default", {"text": np.array(texts)})
    status, columns = call(api, PREDICT, {"inputs": {"text": texts}})
    assert status == 200
    assert {name: np.array(value).shape for name, value in columns["outputs"].items()} == dict.fromkeys(
        expected, (2, 32)
    )
    for body in ({"instances": texts}, {"instances": [{"text": text} for text in texts]}, {"inputs": texts}):
        status, answer = call(api, PREDICT, body)
        rows = answer.get("predictions") or [
            {name: value[i] for name, value in answer["outputs"].items()} for i in range(2)
        ]
        for i, row in enumerate(rows):
            for name, value in row.items():
                assert np.abs(np.array(value, np.float32) - expected[name][i]).max() < 1e-6


def test_several_inputs_signatures_and_versions_are_named(api):
    pair = {"text": "Alice ran.", "text_pair": "The Rabbit ran."}
    path = "/v1/models/albert/versions/3:predict"
    status, rows = call(api, path, {"signature_name": "sop", "instances": [pair]})
    assert status == 200
    columns = {name: [value] for name, value in pair.items()}
    status, answer = call(api, PREDICT, {"signature_name": "sop", "inputs": columns})
    assert rows["predictions"][0]["in_order_probability"] == answer["outputs"]["in_order_probability"][0]


def test_strings_may_be_base64_and_come_back_as_text(api):
    text = {"b64": base64.b64encode(b"Alice was [MASK].").decode()}
    for instances in ([text], ["Alice was [MASK]."]):
        status, answer = call(api, PREDICT, {"signature_name": "mlm", "instances": instances})
        assert status == 200
        assert all(isinstance(piece, str) for piece in answer["predictions"][0]["top_pieces"][0])


def test_token_ids_are_taken(api):
    row = {"input_ids": [2, 7, 8, 3], "segment_ids": [0] * 4, "lengths": 4}
    status, _ = call(api, PREDICT, {"signature_name": "tokens", "instances": [row, row]})
    assert status == 200


TOKENS = {"signature_name": "tokens"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "must be JSON"),
        (b'{"instances": ["\xff"]}', "must be JSON in UTF-8"),
        (b"[" * 19_000, "nested too deep"),
        (b'{"instances": [' + b"9" * 5000 + b"]}", "a number has too many digits"),
        (b'{"instances": [NaN]}', "must hold strings; received another number"),
        ({"instances": ["a"], "signature_name": "x" * 15_000}, "x ..."),
        ([], "must be a JSON object"),
        ({}, "either 'instances'"),
        ({"instances": ["a"], "inputs": ["a"]}, "either 'instances'"),
        ({"instances": []}, "at least one instance"),
        ({"instances": "a"}, "at least one instance"),
        ({"inputs": []}, "from 1 to 8 texts; text has 0"),
        ({"instances": [1]}, "must hold strings; received another number"),
        ({"instances": [None]}, "received null"),
        ({"instances": ["a", {"text": "b"}]}, "must hold strings; received an object"),
        ({"instances": [{"txt": "a"}]}, "must have the keys text"),
        ({"instances": [["a"]]}, "nested 1 deep"),
        ({"instances": ["a", ["b"]]}, "nested equally deep"),
        ({"instances": ["\ud800"]}, "half of a surrogate pair"),
        ({"instances": [{"b64": "*"}]}, "must be base64"),
        ({"instances": [{"b64": "ä"}]}, "must be base64"),
        ({"instances": [{"b64": "/w=="}]}, "text must be UTF-8"),
        ({"instances": ["a" * 1001]}, "a text may be at most 1000 bytes long"),
        ({"instances": ["a"] * 3000}, "from 1 to 8 texts"),
        ({"instances": ["a"], "signature_name": "no"}, "there is no signature 'no'"),
        ({"instances": ["a"], "signature_name": 7}, "signature_name must be a string"),
        ({"instances": ["a"], "signature_name": "sop"}, "objects with the keys text, text_pair"),
        ({"inputs": ["a"], "signature_name": "sop"}, "object with the keys text, text_pair"),
        ({"inputs": {"text": ["a"], "more": ["b"]}}, "no input 'more'"),
        ({**TOKENS, "inputs": {"input_ids": [[2, 3], [2]], "segment_ids": [[0]], "lengths": [1]}}, "equal length"),
        ({**TOKENS, "inputs": {"input_ids": [[2**40]], "segment_ids": [[0]], "lengths": [1]}}, "whole numbers"),
        ({**TOKENS, "inputs": {"input_ids": [[1.5]], "segment_ids": [[0]], "lengths": [1]}}, "whole numbers"),
        ({**TOKENS, "inputs": {"input_ids": [[2, 3]], "segment_ids": [[0, 0]], "lengths": [1, 2]}}, "as many rows"),
        ({**TOKENS, "inputs": {"input_ids": [[2] * 65], "segment_ids": [[0] * 65], "lengths": [9]}}, "not be longer"),
    ],
)
def test_bad_requests_get_a_sentence(api, body, message):
    status, answer = call(api, PREDICT, body)
    assert status == 400
    assert set(answer) == {"error"}
    assert message in answer["error"]


def test_what_is_not_there_is_not_found(api):
    for path in ("/", "/v1/models/bert:predict", "/v1/models/albert/versions/4:predict", "/v1/models/albert:classify"):
        status, answer = call(api, path, {"instances": ["a"]})
        assert status == 404
        assert "error" in answer
    assert call(api, PREDICT)[0] == 405
    assert call(api, "/v1/models/albert", {})[0] == 405


def test_long_bodies_are_refused_declared_or_not(api):
    for headers in ((), [(b"content-length", b"20001")]):
        status, answer = call(api, PREDICT, b"[" * 20_001, headers=headers)
        assert status == 413
        assert "may be at most 20000 bytes long" in answer["error"]


def test_a_body_that_never_ends_is_given_up(api, monkeypatch):
    monkeypatch.setattr(rest_api, "_BODY_SECONDS", 0.05)
    sent = []

    async def receive():
        await asyncio.sleep(30)

    async def send(message):
        sent.append(message)

    asyncio.run(api({"path": PREDICT, "method": "POST", "headers": []}, receive, send))
    assert sent[0]["status"] == 408
    assert "must be sent within" in json.loads(sent[1]["body"])["error"]


def test_status_and_metadata_are_told(api):
    for path in ("/v1/models/albert", "/v1/models/albert/versions/3"):
        status, answer = call(api, path)
        assert answer["model_version_status"] == [
            {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    status, answer = call(api, "/v1/models/albert/metadata")
    assert answer["model_spec"] == {"name": "albert", "signature_name": "", "version": "3"}
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["text"]["dtype"] == "DT_STRING"


def test_a_bug_is_an_internal_error_that_does_not_repeat_the_text(api, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("secret text")

    monkeypatch.setattr(api._service._model, "run", fail)
    status, answer = call(api, PREDICT, {"instances": ["secret text"]})
    assert status == 500
    assert "secret" not in json.dumps(answer) + caplog.text
