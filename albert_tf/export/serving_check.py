"""Whether TensorFlow Serving would run a SavedModel: its shapes, and its answers in a fresh process."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from albert_tf.errors import UserError
from albert_tf.saved_model import session_loader
from albert_tf.saved_model.operations import check_operations, function_names, nodes
from albert_tf.saved_model.served_graph import read_meta_graph

TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}  # of the recorded answers, absolute

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


def check_saved_model(directory: Path, *, precision: str) -> CheckReport:
    """Checks a version directory; raises UserError with the rule that it breaks."""
    meta_graph = read_meta_graph(directory)
    operations = sorted({node.op for node in nodes(meta_graph.graph_def)} - function_names(meta_graph.graph_def))
    check_operations(meta_graph.graph_def, operations)
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
    if not (directory / session_loader.WARMUP_FILE).exists():
        raise UserError(f"{directory} has no {session_loader.WARMUP_FILE}; export it again")
    command = [sys.executable, "-P", "-c", _LAUNCH, session_loader.__file__, str(directory)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        reasons = [line for line in process.stderr.splitlines() if "Error" in line]
        raise UserError(
            f"{directory} does not load and answer as TensorFlow Serving would run it: "
            + (reasons[-1] if reasons else f"the process ended with status {process.returncode}")
        )
    return json.loads(process.stdout.splitlines()[-1])
