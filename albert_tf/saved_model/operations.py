"""The operations that TensorFlow Serving links, and whether a graph has only those."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError

# TensorFlow Serving 2.20.0 links all kernels of TensorFlow's core (model_servers/BUILD, @org_tensorflow//tensorflow/
# core:tensorflow) and the ops_lib of TensorFlow Text 2.20.0 (workspace.bzl). From ops_lib these are allowed: they are
# in the 2.12.1 of Serving 2.19 as well. TFText>RoundRobinTrim, for one, is not.
_TEXT_OPERATIONS = frozenset({
    "CaseFoldUTF8", "FindSourceOffsets", "NormalizeUTF8", "NormalizeUTF8WithOffsetsMap", "RegexSplitWithOffsets",
    "SentencepieceIdToStringOp", "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp",
    "SentencepieceVocabSizeOp", "FastWordpieceTokenizeWithOffsets",
})  # fmt: skip

# In the core's registry, but their kernels are in the Python package or in a compiler that a server does not run.
_WITHOUT_KERNEL = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_XLA_MARKS = ("_XlaMustCompile", "_XlaCompile", "_xla_compile_id")


def nodes(graph_def: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of its functions."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def function_names(graph_def: Any) -> set[str]:
    """Returns the names of a graph's functions, which stand where operations do."""
    return {function.signature.name for function in graph_def.library.function}


def check_operations(graph_def: Any, operations: list[str]) -> None:
    """Raises UserError for operations that a server does not link, and for a graph that asks for XLA."""
    core = set(dir(tf.raw_ops))
    refused = [
        name for name in operations
        if name not in _TEXT_OPERATIONS and (name not in core or name in _WITHOUT_KERNEL or name.startswith("Xla"))
    ]  # fmt: skip
    if refused:
        raise UserError(f"TensorFlow Serving 2.20 does not link the operation(s) {', '.join(refused)}")
    holders = [*nodes(graph_def), *graph_def.library.function]
    marks = sorted({mark for holder in holders for mark in _XLA_MARKS if mark in holder.attr})
    if marks:
        raise UserError(f"TensorFlow Serving does not compile with XLA, and the graph asks for it ({', '.join(marks)})")
