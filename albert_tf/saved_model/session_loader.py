"""A SavedModel in a session, as TensorFlow Serving runs it: without Keras and without the tensorflow-text package.

As a program it replays a SavedModel's warm-up records and prints, as JSON, how long that took and by how much the
answers differ from the recorded ones. It imports nothing else of this project, so that a check sees what a server sees.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"

# TensorFlow Serving links these operations; in Python they are libraries of the tensorflow-text package.
_TEXT_LIBRARIES = (
    "_sentencepiece_tokenizer.so",
    "_normalize_ops.so",
    "_regex_split_ops.so",
    "_fast_wordpiece_tokenizer.so",
)


class SessionModel:
    """A loaded SavedModel; `signatures` are its SignatureDef messages by name."""

    def __init__(self, directory: str | Path) -> None:
        _load_text_operations()
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        with graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(directory))
        self.signatures = {name: s for name, s in meta_graph.signature_def.items() if not name.startswith("__")}

    def run(self, signature_name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature by name; may be called from several threads."""
        signature = self.signatures[signature_name]
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return self._session.run({name: info.name for name, info in signature.outputs.items()}, feeds)


def _load_text_operations() -> None:
    spec = importlib.util.find_spec("tensorflow_text")  # does not import it
    if spec is None or spec.origin is None:
        raise ImportError("tensorflow-text is not installed")
    for library in _TEXT_LIBRARIES:
        tf.load_op_library(str(Path(spec.origin).parent / "python" / "ops" / library))


def replay(directory: str) -> dict[str, Any]:
    """Runs the warm-up records of a SavedModel in order; returns times in seconds and the largest differences."""
    from tensorflow_serving.apis import prediction_log_pb2

    start = time.monotonic()
    model = SessionModel(directory)
    loaded = time.monotonic()
    first_answer = None
    differences: dict[str, float] = {}
    records = tf.compat.v1.io.tf_record_iterator(f"{directory}/{WARMUP_FILE}")
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]
    for log in logs:
        signature_name = log.request.model_spec.signature_name
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in log.request.inputs.items()}
        answers = model.run(signature_name, inputs)
        first_answer = first_answer or time.monotonic()
        for name, recorded in log.response.outputs.items():
            key = f"{signature_name}/{name}"
            difference = _difference(answers[name], tf.make_ndarray(recorded))
            differences[key] = max(differences.get(key, 0.0), difference)
    return {
        "records": len(logs),
        "load_seconds": loaded - start,
        "first_answer_seconds": (first_answer or loaded) - loaded,
        "warmup_seconds": time.monotonic() - loaded,
        "differences": differences,
    }


def _difference(answer: np.ndarray, recorded: np.ndarray) -> float:
    """Returns the largest absolute difference; infinity where shapes, integers or strings differ."""
    if answer.shape != recorded.shape:
        return float("inf")
    if not np.issubdtype(answer.dtype, np.floating):
        return 0.0 if np.array_equal(answer, recorded) else float("inf")
    difference = np.abs(answer - recorded).max(initial=0.0)
    return float(difference) if np.isfinite(difference) else float("inf")


if __name__ == "__main__":
    print(json.dumps(replay(sys.argv[1])))
