"""What stands beside the graph of a served model: warm-up requests with their answers, batching, sample configuration.

See https://www.tensorflow.org/tfx/serving/saved_model_warmup and tensorflow_serving/servables/tensorflow/
session_bundle_config.proto.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from albert_tf.export.signatures import RANKED_OUTPUTS
from albert_tf.saved_model.session_loader import WARMUP_FILE
from albert_tf.text.packing import pack_texts
from albert_tf.text.tokenizer_files import Tokenizer

BATCHING_FILE = "batching_params.pbtxt"  # at this place by --enable_per_model_batching_parameters
MODELS_CONFIG_FILE = "assets.extra/models.config"

_MODEL_NAME = "albert"
_WARMUP_LENGTHS = (16, 64, 256)  # tokens; shapes that a server meets often, and few, because loading waits for them
_WORDS = ["The", "quick", "brown", "[MASK]", "jumps", "over", "the", "lazy", "dog."]
_SHORT_TEXTS = (" ".join(_WORDS), "", "Two sentences. \u00c9t\u00e9 2,500!")

_BATCHING = """\
# Used with --enable_batching --enable_per_model_batching_parameters. On a CPU the time of a batch grows with its size:
# batches only collect what waits anyway. Set num_batch_threads to the number of cores.
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
num_batch_threads { value: 4 }
max_enqueued_batches { value: 128 }
# Safe here: the signature `tokens` makes its mask from `lengths`, not from what a server pads with.
pad_variable_length_inputs: true
"""

_MODELS_CONFIG = """\
# tensorflow_model_server --model_config_file=models.config; base_path holds the numbered versions.
model_config_list {
  config {
    name: "%(name)s"
    base_path: "/models/%(name)s"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: %(version)d } }
    version_labels { key: "stable" value: %(version)d }
  }
}
"""


def write_serving_files(directory: Path, *, version: int) -> None:
    """Writes the batching parameters and a sample `models.config`."""
    (directory / BATCHING_FILE).write_text(_BATCHING, encoding="utf-8")
    (directory / MODELS_CONFIG_FILE).parent.mkdir(exist_ok=True)
    (directory / MODELS_CONFIG_FILE).write_text(
        _MODELS_CONFIG % {"name": _MODEL_NAME, "version": version}, encoding="utf-8"
    )


def write_warmup_records(
    directory: Path, signatures: Mapping[str, Any], *, tokenizer: Tokenizer, max_seq_length: int
) -> None:
    """Writes a PredictionLog of each warm-up request with the answer of `signatures`, concrete functions by name.

    A server replays the requests when it loads the model; the answers are for `export_check`.
    """
    (directory / WARMUP_FILE).parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(directory / WARMUP_FILE)) as writer:
        for name, function in signatures.items():
            specs = tf.nest.flatten(function.structured_input_signature)
            ranks = {spec.name: spec.shape.rank for spec in specs if isinstance(spec, tf.TensorSpec)}
            for inputs in _warmup_inputs(ranks, tokenizer, max_seq_length):
                answers = function(**{key: tf.constant(value) for key, value in inputs.items()})
                writer.write(_prediction_log(name, inputs, answers).SerializeToString(deterministic=True))


def _prediction_log(
    name: str, inputs: Mapping[str, np.ndarray], answers: Mapping[str, tf.Tensor]
) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request, response = log.predict_log.request, log.predict_log.response
    request.model_spec.name, request.model_spec.signature_name = _MODEL_NAME, name
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    for key, answer in answers.items():
        if key not in RANKED_OUTPUTS:
            response.outputs[key].CopyFrom(tf.make_tensor_proto(answer.numpy()))
    return log


def _warmup_inputs(
    ranks: Mapping[str, int], tokenizer: Tokenizer, max_seq_length: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of a signature, by name and rank: a batch of short texts, then one text of each length."""
    lengths = [length for length in _WARMUP_LENGTHS if length < max_seq_length]
    batches = [_SHORT_TEXTS, *((" ".join(_WORDS * (length // len(_WORDS))),) for length in [*lengths, max_seq_length])]
    for texts in batches:
        inputs = {"text": np.array(texts), "text_pair": np.array(texts[::-1])}
        if ranks.get("text_pair") == 2:  # choices
            inputs["text_pair"] = np.tile(inputs["text_pair"], (len(texts), 2))
        if "input_ids" in ranks:
            packed = pack_texts(tokenizer, texts, max_seq_length=max_seq_length)
            inputs = {**packed, "lengths": packed["input_mask"].sum(axis=1, dtype=np.int32)}
        yield {name: inputs[name] for name in ranks}
