import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from albert_tf.export.serving_files import BATCHING_FILE, MODELS_CONFIG_FILE
from albert_tf.saved_model.session_loader import WARMUP_FILE


@pytest.fixture(scope="module")
def records(exported):
    data = tf.data.TFRecordDataset(str(exported / WARMUP_FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in data]


def test_every_signature_is_warmed_up_with_several_lengths(records, session_model):
    assert len(records) <= 1000  # what a server accepts
    by_signature = {}
    for record in records:
        by_signature.setdefault(record.request.model_spec.signature_name, []).append(record.request)
    assert set(by_signature) == set(session_model.signatures)
    for name, requests in by_signature.items():
        assert {input_name for request in requests for input_name in request.inputs} == set(
            session_model.signatures[name].inputs
        )
        sizes = {sum(tensor.ByteSize() for tensor in request.inputs.values()) for request in requests}
        assert len(sizes) == len(requests) >= 3


def test_answers_are_recorded_but_for_those_that_may_change_places(records):
    for record in records:
        names = set(record.response.outputs)
        assert names, record.request.model_spec.signature_name
        assert "top_ids" not in names
        values = [tf.make_ndarray(tensor) for tensor in record.response.outputs.values()]
        assert all(np.isfinite(value).all() for value in values if value.dtype != object)


def test_the_sample_configuration_is_one_for_tf_serving(exported):
    text = (exported / MODELS_CONFIG_FILE).read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config[0]
    assert config.base_path == "/models/albert"
    assert list(config.model_version_policy.specific.versions) == [3]
    assert dict(config.version_labels) == {"stable": 3}


def test_batching_pads_and_limits_batches(exported):
    text = (exported / BATCHING_FILE).read_text()
    for part in ("max_batch_size { value: 32 }", "pad_variable_length_inputs: true"):
        assert part in text
