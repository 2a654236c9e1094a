import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.saved_model.operations import check_operations, function_names, nodes


def graph_of(function):
    return tf.function(function).get_concrete_function(tf.TensorSpec([None], tf.string)).graph.as_graph_def()


def test_nodes_of_functions_are_nodes_of_the_graph():
    inner = tf.function(lambda text: tf.strings.length(text) + 1)
    graph_def = graph_of(lambda text: inner(text))
    assert {"StringLength", "AddV2"} <= {node.op for node in nodes(graph_def)}
    assert len(function_names(graph_def)) == 1


def test_what_a_server_links_passes_and_what_it_does_not_is_named():
    check_operations(graph_of(tf.strings.length), ["StringLength", "SentencepieceTokenizeOp"])
    with pytest.raises(UserError, match=r"does not link the operation\(s\) PyFunc, TFText>RoundRobinTrim"):
        check_operations(graph_of(tf.strings.length), ["PyFunc", "TFText>RoundRobinTrim"])
