"""Servers in processes of their own, and clients for them: the same for `albert_tf.serve` and TensorFlow Serving."""

import contextlib
import dataclasses
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc
import tensorflow as tf
from conftest import ROOT
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

TF_SERVING = shutil.which("tensorflow_model_server")
TF_SERVING_MISSING = "tensorflow_model_server is not on the PATH; it comes with the image tensorflow/serving:2.20.0"


@dataclasses.dataclass
class RunningServer:
    process: subprocess.Popen
    rest_port: int
    grpc_port: int
    log: list

    def get(self, path):
        return self._request(urllib.request.Request(self._url(path)))

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._request(urllib.request.Request(self._url(path), data=data, method="POST"))

    def predict(self, **body):
        return self.post("/v1/models/albert:predict", body)

    def grpc_predict(self, signature_name="", **inputs):
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "albert", signature_name
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
        return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}

    def _url(self, path):
        return f"http://127.0.0.1:{self.rest_port}{path}"

    @staticmethod
    def _request(request):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@contextlib.contextmanager
def running_process(command, is_ready):
    """Runs a server until the block ends; yields it once `is_ready(log)` gives its REST and gRPC ports."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    log = []
    reader = threading.Thread(target=lambda: log.extend(process.stdout), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + 90
        while not (ports := is_ready(log)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start:\n" + "".join(log))
            time.sleep(0.1)
        yield RunningServer(process, *ports, log)
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def serve(directory, *flags):
    """Runs `albert_tf.serve` on free ports."""
    command = [sys.executable, "-m", "albert_tf.serve", f"--saved_model_dir={directory}", "--rest_port=0", "--port=0"]

    def ports(log):
        found = re.search(r"REST http://127\.0\.0\.1:(\d+)/.* and gRPC 127\.0\.0\.1:(\d+)", "".join(log))
        return found and (int(found[1]), int(found[2]))

    return running_process([*command, *flags], ports)


def tensorflow_model_server(base_path):
    """Runs TensorFlow Serving on free ports."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
    command = [TF_SERVING, f"--rest_api_port={ports[0]}", f"--port={ports[1]}", "--model_name=albert"]
    return running_process(
        [*command, f"--model_base_path={base_path}"],
        lambda log: ports if "Exporting HTTP/REST API" in "".join(log) else None,
    )
