"""Whether TensorFlow Serving would run a SavedModel: its operations, its shapes, and its answers in a fresh process."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf import session_model
from albert_tf.errors import UserError, first_line

TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}  # of the recorded answers, absolute

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

# Keras and this project cannot be imported there, and the graphics card is hidden: the records were made on the CPU.
_LAUNCH = """
import runpy, sys
sys.modules["keras"] = sys.modules["albert_tf"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check has found; times are in seconds, `difference` is the largest from the recorded answers."""

    operations: list[str]
    signatures: list[str]
    records: int
    load_seconds: float
    first_answer_seconds: float
    warmup_seconds: float
    difference: float

    def lines(self) -> list[str]:
        """Returns the report for people."""
        return [
            f"Signatures: {', '.join(self.signatures)}",
            f"{len(self.operations)} operations, all of which TensorFlow Serving 2.20 links: "
            + ", ".join(self.operations),
            f"{self.records} warm-up requests answered as recorded (largest difference {self.difference:.1e})",
            f"Loaded in {self.load_seconds:.2f} s; first answer after {self.first_answer_seconds:.2f} s, all of the "
            f"warm-up after {self.warmup_seconds:.2f} s",
        ]


def load_saved_model(directory: Path) -> session_model.SessionModel:
    """Loads a version directory as a server does; raises UserError where it is damaged."""
    _read_meta_graph(directory)
    try:
        return session_model.SessionModel(directory)
    except (tf.errors.OpError, OSError, ValueError) as error:
        reason = first_line(error).removeprefix("Graph execution error:") or "its variables cannot be read"
        raise UserError(f"{directory} is damaged: it does not load ({reason}); export it again") from None


def check_saved_model(directory: Path, *, precision: str) -> CheckReport:
    """Checks a version directory; raises UserError with the rule that it breaks."""
    meta_graph = _read_meta_graph(directory)
    operations = sorted({node.op for node in _nodes(meta_graph.graph_def)} - _function_names(meta_graph.graph_def))
    _check_operations(meta_graph.graph_def, operations)
    signatures = {name: s for name, s in meta_graph.signature_def.items() if not name.startswith("__")}
    _check_batch_dimensions(signatures)
    report = _replay_in_fresh_process(directory)
    for name, difference in report["differences"].items():
        if not difference <= TOLERANCES[precision]:
            raise UserError(
                f"{directory} does not give its recorded answers: {name} differs by {difference:.2g}, and "
                f"{TOLERANCES[precision]:.0e} is allowed in {precision}"
            )
    return CheckReport(
        operations=operations,
        signatures=sorted(signatures),
        difference=max(report.pop("differences").values(), default=0.0),
        **report,
    )


def _read_meta_graph(directory: Path) -> Any:
    file = directory / "saved_model.pb"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except OSError as error:
        raise UserError(f"{directory} is not a SavedModel: {file.name} cannot be read ({error.strerror})") from None
    except Exception as error:  # protobuf's DecodeError moved between versions
        raise UserError(f"{directory} is not a SavedModel: {file.name} is damaged ({error})") from None
    served = [graph for graph in saved_model.meta_graphs if "serve" in graph.meta_info_def.tags]
    if len(served) != 1:
        raise UserError(f"{directory} must hold one graph with the tag 'serve'; it holds {len(served)}")
    return served[0]


def _nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _function_names(graph_def: Any) -> set[str]:
    return {function.signature.name for function in graph_def.library.function}


def _check_operations(graph_def: Any, operations: list[str]) -> None:
    core = set(dir(tf.raw_ops))
    refused = [
        name for name in operations
        if name not in _TEXT_OPERATIONS and (name not in core or name in _WITHOUT_KERNEL or name.startswith("Xla"))
    ]  # fmt: skip
    if refused:
        raise UserError(f"TensorFlow Serving 2.20 does not link the operation(s) {', '.join(refused)}")
    holders = [*_nodes(graph_def), *graph_def.library.function]
    marks = sorted({mark for holder in holders for mark in _XLA_MARKS if mark in holder.attr})
    if marks:
        raise UserError(f"TensorFlow Serving does not compile with XLA, and the graph asks for it ({', '.join(marks)})")


def _check_batch_dimensions(signatures: dict[str, Any]) -> None:
    for name, signature in signatures.items():
        for tensor_name, info in [*signature.inputs.items(), *signature.outputs.items()]:
            shape = info.tensor_shape
            if shape.unknown_rank or not shape.dim or shape.dim[0].size != -1:
                raise UserError(
                    f"the first dimension of every input and output must be the batch, of any size, or a server cannot "
                    f"batch requests; {tensor_name} of signature {name} has shape {[d.size for d in shape.dim]}"
                )


def _replay_in_fresh_process(directory: Path) -> dict[str, Any]:
    if not (directory / session_model.WARMUP_FILE).exists():
        raise UserError(f"{directory} has no {session_model.WARMUP_FILE}; export it again")
    command = [sys.executable, "-P", "-c", _LAUNCH, session_model.__file__, str(directory)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        reasons = [line for line in process.stderr.splitlines() if "Error" in line]
        raise UserError(
            f"{directory} does not load and answer as TensorFlow Serving would run it: "
            + (reasons[-1] if reasons else f"the process ended with status {process.returncode}")
        )
    return json.loads(process.stdout.splitlines()[-1])
