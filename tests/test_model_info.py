from types import SimpleNamespace

from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import get_model_metadata_pb2

from albert_tf.model_info import metadata_response, status_response

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
