"""Compiles a lowered training step for TPUs ahead of time, with libtpu and without a TPU.

It imports jax, whose compile-only client drives libtpu (the extra `tpu-aot`), by names that are private to jax: hence
the pinned version. libtpu reads its environment once, so `compile_module` starts a process of its own, in which
`compile_all` runs. Nothing is executed: what is learnt is whether the program compiles and fits.
"""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from albert_tf.errors import UserError, first_line

# Topologies of the smallest slices, with the HBM of what is one replica under TPUStrategy: a core of v3, a chip of the
# others.
TOPOLOGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "v3": ("v3:2x2", {}),
    "v4": ("v4:2x2x1", {"chip_config_name": "megacore"}),
    "v5e": ("v5e:2x2", {}),
    "v5p": ("v5p:2x2x1", {}),
    "v6e": ("v6e:2x2", {}),
}

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED.*?\(([\d.]+[KMG])\) exceeds available HBM \(([\d.]+[KMG])\)", re.S)
_DYNAMIC_TYPE = re.compile(r"tensor<[^>]*\?[^>]*>")
_MINUTES = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What the TPU compiler said of one program on one kind of chip; sizes in bytes, as laid out there."""

    chip: str
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    temp_bytes: int = 0
    flops: float = 0.0
    dynamic_shapes: tuple[str, ...] = ()
    out_of_memory: str | None = None
    error: str | None = None

    @property
    def fits(self) -> bool:
        """Whether it compiled."""
        return self.out_of_memory is None and self.error is None

    @property
    def needed_bytes(self) -> int:
        """The memory that the program takes: arguments, outputs that are not updates in place, and temporaries."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes


def check_installed() -> None:
    """Raises UserError unless jax and libtpu are there."""
    missing = [name for name in ("jax", "libtpu") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"compiling for TPUs needs {' and '.join(missing)}; install the extra: pip install 'albert-tf[tpu-aot]'"
        )


def compile_module(module: Path, chips: list[str], *, fast: bool) -> list[Compiled]:
    """Compiles a file of serialised StableHLO for each chip, in a process of its own.

    `fast` compiles with less optimisation: 4 to 19 times faster, with a memory need within some per cent.
    """
    call = f"from {__name__} import compile_all; compile_all({str(module)!r}, {chips!r}, fast={fast!r})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", call],
            capture_output=True,
            text=True,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=60 * _MINUTES,
        )
    except subprocess.TimeoutExpired:
        return [Compiled(chip=chip, error=f"no answer within {_MINUTES} minutes") for chip in chips]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    answered = {result["chip"]: Compiled(**result) for result in results}
    reason = (done.stderr.strip().splitlines() or [f"the compiler ended with status {done.returncode}"])[-1]
    return [answered.get(chip, Compiled(chip=chip, error=reason)) for chip in chips]


def compile_all(path: str, chips: list[str], *, fast: bool) -> None:
    """Prints a line of JSON for each chip."""
    serialized = Path(path).read_bytes()
    for chip in chips:
        print(json.dumps(dataclasses.asdict(_compile(serialized, chip, fast=fast))), flush=True)


def _compile(serialized: bytes, chip: str, *, fast: bool) -> Compiled:
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    topology, options = TOPOLOGIES[chip]
    device = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options).devices[0]
    compile_options = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.array([[device.id]])
    )
    if fast:
        compile_options.executable_build_options.exec_time_optimization_effort = -1.0
    with mlir.make_ir_context():
        module = ir.Module.parse(serialized)
        _remove_copies(module, ir)
        dynamic = tuple(sorted(set(_DYNAMIC_TYPE.findall(str(module)))))
        try:
            executable = device.client.compile(
                module, executable_devices=_jax.DeviceList((device,)), compile_options=compile_options
            )
        except jax.errors.JaxRuntimeError as error:
            full = _OUT_OF_MEMORY.search(str(error))
            if full:
                return Compiled(chip=chip, dynamic_shapes=dynamic, out_of_memory=f"{full[1]} of {full[2]}")
            return Compiled(chip=chip, dynamic_shapes=dynamic, error=first_line(error))
    memory = executable.get_compiled_memory_stats()
    return Compiled(
        chip=chip,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        flops=executable.cost_analysis()["flops"],
        dynamic_shapes=dynamic,
    )


def _remove_copies(module: Any, ir: Any) -> None:
    """Removes TensorFlow's `mhlo.copy` before each updated variable, which the TPU compiler does not know."""
    copies = []

    def collect(operation: Any) -> Any:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for operation in copies:
        operation.results[0].replace_all_uses_with(operation.operands[0])
        operation.erase()
