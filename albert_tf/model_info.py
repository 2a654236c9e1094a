"""TensorFlow Serving's messages about a model: which version is available, and what its signatures are."""

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from albert_tf.predict_service import PredictService


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
