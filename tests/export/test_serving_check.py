import shutil

import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow_serving.apis import prediction_log_pb2

from albert_tf.checkpoints.opening import load_model
from albert_tf.errors import UserError
from albert_tf.export.serving_check import check_saved_model
from albert_tf.saved_model.session_loader import WARMUP_FILE

TEXT = tf.TensorSpec([None], tf.string, name="text")


def save(directory, function, **options):
    """Saves a function of strings [batch] as a SavedModel."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=[TEXT], **options)
    signatures = {"serving_default": module.function.get_concrete_function()}
    tf.saved_model.save(module, str(directory), signatures=signatures)
    return directory


def test_a_good_export_passes_and_is_described(exported):
    report = check_saved_model(exported, precision="float32")
    assert report.difference < 1e-5
    assert report.records == 21
    assert report.signatures == ["embeddings", "mlm", "serving_default", "serving_pair", "sop", "tokenize", "tokens"]
    assert {"SentencepieceTokenizeOp", "MatMul", "NormalizeUTF8"} <= set(report.operations)
    lines = "\n".join(report.lines())
    for part in ("Signatures: embeddings", "MatMul", "21 warm-up requests", "first answer after"):
        assert part in lines


def test_operations_that_a_server_does_not_link_are_refused(tmp_path):
    def python_function(text):
        return {"length": tf.numpy_function(len, [text], tf.int64)[None]}

    def trimmed(text):
        ids = tf.RaggedTensor.from_tensor(tf.strings.length(text)[:, None])
        return {"trimmed": tensorflow_text.RoundRobinTrimmer(3).trim([ids, ids])[0].to_tensor()}

    for function, name in ((python_function, "PyFunc"), (trimmed, "TFText>RoundRobinTrim")):
        with pytest.raises(UserError, match=f"does not link the operation.*{name}"):
            check_saved_model(save(tmp_path / name, function), precision="float32")


def test_a_graph_that_asks_for_xla_is_refused(tmp_path):
    inner = tf.function(lambda x: x * 2, jit_compile=True)
    directory = save(tmp_path / "xla", lambda text: {"length": inner(tf.strings.length(text))})
    with pytest.raises(UserError, match=r"does not compile with XLA.*_XlaMustCompile"):
        check_saved_model(directory, precision="float32")


@pytest.mark.parametrize("function", [lambda text: tf.size(text), lambda text: tf.size(text)[None]])
def test_outputs_without_a_batch_are_refused(tmp_path, function):
    directory = save(tmp_path / "scalar", lambda text: {"answer": function(text)})
    with pytest.raises(UserError, match="must be the batch.*answer of signature serving_default"):
        check_saved_model(directory, precision="float32")


def test_what_is_no_export_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        check_saved_model(tmp_path, precision="float32")
    directory = save(tmp_path / "bare", lambda text: {"length": tf.strings.length(text)})
    with pytest.raises(UserError, match="has no assets.extra/tf_serving_warmup_requests"):
        check_saved_model(directory, precision="float32")
    (directory / "saved_model.pb").write_bytes(b"no protocol buffer")
    with pytest.raises(UserError, match="is damaged"):
        check_saved_model(directory, precision="float32")


def add_warmup(directory, *, length):
    """Records that the text "Alice" has the answer `length`."""
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = "serving_default"
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(["Alice"]))
    log.predict_log.response.outputs["length"].CopyFrom(tf.make_tensor_proto([length]))
    (directory / WARMUP_FILE).parent.mkdir()
    with tf.io.TFRecordWriter(str(directory / WARMUP_FILE)) as writer:
        writer.write(log.SerializeToString())


def test_other_answers_than_the_recorded_ones_are_noticed(tmp_path):
    directory = save(tmp_path / "lengths", lambda text: {"length": tf.cast(tf.strings.length(text), tf.float32)})
    add_warmup(directory, length=5.00003)
    with pytest.raises(UserError, match=r"serving_default/length differs by 3(.0)?e-05, and 1e-05 is allowed"):
        check_saved_model(directory, precision="float32")
    shutil.rmtree(directory / "assets.extra")
    add_warmup(directory, length=5.000003)
    assert 0 < check_saved_model(directory, precision="float32").difference < 1e-5


def test_a_module_that_holds_a_keras_layer_does_not_pass(served_checkpoint, tmp_path):
    """The failure that the fresh process is for: it loads with tf.saved_model.load, and not where TF Serving runs."""
    module = tf.Module()
    module.encoder = load_model(served_checkpoint).encoder

    def embed(text):
        ids = tf.ones([tf.size(text), 4], tf.int32)
        outputs = module.encoder({"input_ids": ids, "input_mask": ids, "segment_ids": ids})
        return {"length": outputs["pooled_output"]}

    module.function = tf.function(embed, input_signature=[TEXT])
    signatures = {"serving_default": module.function.get_concrete_function()}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    add_warmup(tmp_path, length=1.0)
    with pytest.raises(UserError, match="does not load and answer as TensorFlow Serving would run it.*Error"):
        check_saved_model(tmp_path, precision="float32")
