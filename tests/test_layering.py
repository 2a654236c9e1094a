"""The rules of DESIGN that a parser can check: who imports whom, sizes, test files, no assert."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEVELS = [
    {"__init__", "version", "errors", "files", "config", "sharing", "keyed_random", "normalization", "tokenizer_base",
     "sentencepiece_tokenizer", "hf_tokenizer", "wordpiece_tokenizer", "tokenizer", "packing", "masking", "records",
     "manifest", "options", "run_config", "serving_config", "command_line", "weight_maps", "memory",
     "divergence", "stop_requests",
     "inference_config", "text_rows", "answer_files",
     "tpu_compiler"},
    {"fused_ops", "dropout", "layers", "losses", "dynamic_masking", "optimizers", "distribution", "graph_tokenizer",
     "graph_packing", "session_model", "answer_spans",
     "workers", "utilisation"},
    {"encoder", "heads", "input_pipeline", "checkpoints",
     "tensor_files", "foreign_checkpoints", "loading",
     "run_checkpoints", "run_record", "run_data",
     "inference_graph"},
    {"train_log", "train_loop", "signatures", "export_assets", "export_check", "export", "pretraining", "conversion",
     "summary", "predict_service", "rest_api", "grpc_api", "local_server",
     "train_step", "failures", "run_plan",
     "engine",
     "inference", "tpu_fit"},
    {"run_pretraining", "export_saved_model", "convert_checkpoint", "serve",
     "run_inference", "tpu_aot"},
]  # fmt: skip
WITHOUT_TENSORFLOW = LEVELS[0]
HEAVY = ("tensorflow", "keras", "tensorflow_text")
MODULES = sorted([*(ROOT / "albert_tf").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")])


def imports_of(path: Path, *, at_once: bool = False) -> set[str]:
    """Returns the dotted names that a module imports anywhere in it, or only those when it is imported itself."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def level_of(name: str) -> int:
    return next(level for level, members in enumerate(LEVELS) if name in members)


def test_every_module_has_a_level():
    known = set().union(*LEVELS)
    assert {path.stem for path in (ROOT / "albert_tf").rglob("*.py")} == known


@pytest.mark.parametrize("path", [p for p in MODULES if p.parent.name == "albert_tf"], ids=lambda p: p.stem)
def test_albert_tf_imports_go_down_the_levels(path):
    own = level_of(path.stem)
    for name in imports_of(path):
        parts = name.split(".")
        assert parts[0] != "data_prep", f"{path.name} imports {name}"
        if parts[0] == "albert_tf":
            imported = parts[1] if parts[1] in set().union(*LEVELS) else "__init__"
            assert level_of(imported) <= own, f"{path.name} (level {own}) imports {name}"
            assert level_of(imported) < 4, f"{path.name} imports the entry point {name}"
        if path.stem in WITHOUT_TENSORFLOW:
            assert parts[0] not in HEAVY, f"{path.name} imports {name}"
        if path.stem != "graph_tokenizer":
            assert parts[0] != "tensorflow_text", f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.parent.name == "data_prep"], ids=lambda p: p.stem)
def test_data_prep_knows_only_what_needs_no_tensorflow(path):
    for name in imports_of(path, at_once=path.stem == "text_inputs"):  # it reads from the cloud and TFDS
        parts = name.split(".")
        assert parts[0] not in (*HEAVY, "tensorflow_datasets"), f"{path.name} imports {name}"
        if parts[0] == "albert_tf":
            assert parts[1] in WITHOUT_TENSORFLOW, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem not in ("__init__", "version")], ids=lambda p: p.stem)
def test_every_module_has_its_test_file(path):
    assert (ROOT / "tests" / f"test_{path.stem}.py").exists()


@pytest.mark.parametrize("path", MODULES, ids=lambda p: f"{p.parent.name}.{p.stem}")
def test_sizes_and_no_assert(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        assert not isinstance(node, ast.Assert), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}:{node.lineno} {node.name}"


# Operands in their usual order, Keras' calls, what a pool of processes calls, and what reads as a sentence.
MORE_POSITIONAL_ARGUMENTS = {
    "fused_ops.residual_norm", "losses.cross_entropy", "losses.accuracy", "answer_spans.best_span", "signatures.tokens",
    "heads.call", "layers.__init__", "work_units.start_worker", "work_units.__init__", "sentence_pairs.document_key",
    "train_step.create", "train_log.write",
}  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=lambda p: f"{p.parent.name}.{p.stem}")
def test_public_functions_take_two_positional_arguments_at_most(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
    methods = [node for owner in public if isinstance(owner, ast.ClassDef) for node in owner.body]
    for node in public + methods:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            given = [arg.arg for arg in node.args.posonlyargs + node.args.args if arg.arg not in ("self", "cls")]
            name = f"{path.stem}.{node.name}"
            assert len(given) <= 2 or name in MORE_POSITIONAL_ARGUMENTS, f"{name}, line {node.lineno}: {given}"


def test_configs_hold_no_python():
    assert not list((ROOT / "configs").rglob("*.py"))
