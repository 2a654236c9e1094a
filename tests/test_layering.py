"""The rules of the house that a parser can check: rooms, circles, imports at import time, sizes, test files."""

import ast
import functools
import graphlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "albert_tf"

# Each room with the rooms that it may know, beside KNOWN_TO_ALL.
BELOW_TRAINING = ("architecture", "text", "records", "settings", "model", "checkpoints")
ROOMS = {
    "architecture": (),
    "text": (),
    "records": ("text",),
    "settings": ("architecture", "text", "records"),
    "model": ("architecture",),
    "checkpoints": ("architecture", "text", "settings", "model"),
    "saved_model": (),
    "training": BELOW_TRAINING,
    "pretraining": (*BELOW_TRAINING, "training", "export"),
    "inference": (*BELOW_TRAINING, "saved_model"),
    "export": (*BELOW_TRAINING, "saved_model", "inference"),
    "serving": ("settings", "saved_model"),
    "tpu": ("architecture", "settings", "model", "training", "pretraining"),
}
KNOWN_TO_ALL = {"errors", "files", "version"}
ENTRY_POINTS = {
    "convert_checkpoint": "checkpoints",
    "export_saved_model": "export",
    "run_inference": "inference",
    "run_pretraining": "pretraining",
    "serve": "serving",
    "tpu_aot": "tpu",
}
ALIASES = {"encoder"}  # what `.keras` files of the first version say the encoder's module is
DATA_PREP_KNOWS = {"architecture", "text", "records", "settings"}

WITHOUT_TENSORFLOW = {"architecture", "text", "records", "settings"}
HEAVY = {"tensorflow", "keras", "tensorflow_text"}

MODULES = sorted([*HOUSE.rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")])
IN_ROOMS = [path for path in MODULES if path.parent.parent == HOUSE]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path, *, at_once: bool = False) -> set[str]:
    """Returns the dotted names that a module imports anywhere in it, or only those when it is imported itself."""
    names = set()
    for node in tree_of(path).body if at_once else ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_imports(path: Path) -> set[tuple[str, ...]]:
    """Returns the modules of the house that a module imports, as the parts of their names below it."""
    found = set()
    for name in imports_of(path):
        package, *parts = name.split(".")
        if package == "albert_tf":
            is_module = (HOUSE / "/".join(parts)).with_suffix(".py").exists()
            found.add(tuple(parts) if is_module else tuple(parts[:-1]))
    return found


def test_every_folder_is_a_room_of_the_table():
    assert {path.parent.name for path in HOUSE.glob("*/*.py")} == set(ROOMS)
    loose = {path.stem for path in HOUSE.glob("*.py")}
    assert loose == {"__init__", *KNOWN_TO_ALL, *ENTRY_POINTS, *ALIASES}


@pytest.mark.parametrize("path", IN_ROOMS, ids=name_of)
def test_a_room_knows_only_the_rooms_of_its_row(path):
    room = path.parent.name
    for parts in own_imports(path):
        allowed = parts[0] in KNOWN_TO_ALL or parts[0] in (room, *ROOMS[room])
        assert allowed, f"{name_of(path)} imports albert_tf.{'.'.join(parts)}"


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_an_entry_point_knows_the_settings_and_its_own_room(entry):
    path = HOUSE / f"{entry}.py"
    assert path.read_text(encoding="utf-8").count("\n") <= 150
    rooms = {parts[0] for parts in own_imports(path)}
    assert rooms <= {"settings", ENTRY_POINTS[entry], *KNOWN_TO_ALL}


def test_neither_rooms_nor_modules_stand_in_a_circle():
    graphlib.TopologicalSorter(ROOMS).prepare()
    imported = {path.relative_to(HOUSE).with_suffix("").parts: own_imports(path) for path in IN_ROOMS}
    graphlib.TopologicalSorter(imported).prepare()


@pytest.mark.parametrize("path", [path for path in IN_ROOMS if path.parent.name in WITHOUT_TENSORFLOW], ids=name_of)
def test_light_rooms_import_no_tensorflow(path):
    assert HEAVY.isdisjoint(name.split(".")[0] for name in imports_of(path, at_once=True))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_graph_tokenizer_imports_tensorflow_text(path):
    assert path.stem == "graph_tokenizer" or "tensorflow_text" not in {n.split(".")[0] for n in imports_of(path)}


@pytest.mark.parametrize("path", list((ROOT / "data_prep").glob("*.py")), ids=name_of)
def test_data_prep_knows_only_what_needs_no_tensorflow(path):
    at_once = path.stem == "text_inputs"  # it reads from the cloud and TFDS
    for name in imports_of(path, at_once=at_once):
        parts = name.split(".")
        assert parts[0] not in {*HEAVY, "tensorflow_datasets", "data_prep"}, f"{path.name} imports {name}"
        if parts[0] == "albert_tf":
            assert parts[1] in DATA_PREP_KNOWS | KNOWN_TO_ALL, f"{path.name} imports {name}"


def test_no_two_modules_share_a_name():
    names = [path.stem for path in MODULES if path.stem != "__init__" and path.stem not in ALIASES]
    rooms_of_settings = set(ROOMS)  # the flags of a command stand under the name of its room
    assert sorted(names) == sorted(set(names))
    assert not {"utils", "common", "helpers", "misc"} & {*names, *rooms_of_settings}


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem not in ("__init__", "version", *ALIASES)], ids=name_of)
def test_every_module_has_its_test_file(path):
    beside = path.parent.relative_to(HOUSE if HOUSE in path.parents else ROOT)
    at_the_top = path.stem in ENTRY_POINTS or path.parent == HOUSE
    assert (ROOT / "tests" / ("" if at_the_top else beside) / f"test_{path.stem}.py").exists()


def test_every_room_is_in_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    assert listed == {"albert_tf", "albert_tf_data_prep", *(f"albert_tf.{room}" for room in ROOMS)}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_sizes_and_no_assert(path):
    assert path.read_text(encoding="utf-8").count("\n") <= 400
    for node in ast.walk(tree_of(path)):
        assert not isinstance(node, ast.Assert), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}:{node.lineno} {node.name}"


def test_nine_in_ten_are_smaller():
    files = [path.read_text(encoding="utf-8").count("\n") for path in MODULES]
    functions = [
        node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    ]
    assert sum(size <= 320 for size in files) >= 0.9 * len(files)
    assert sum(size <= 45 for size in functions) >= 0.9 * len(functions)


# Operands in their usual order, Keras' calls, what a pool of processes calls, and what reads as a sentence.
MORE_POSITIONAL_ARGUMENTS = {
    "fused_ops.residual_norm", "losses.cross_entropy", "losses.accuracy", "answer_spans.best_span", "signatures.tokens",
    "heads.call", "primitives.__init__", "work_units.start_worker", "work_units.__init__",
    "sentence_pairs.document_key", "step.create", "log.write",
}  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_functions_take_two_positional_arguments_at_most(path):
    public = [node for node in tree_of(path).body if not getattr(node, "name", "_").startswith("_")]
    methods = [node for owner in public if isinstance(owner, ast.ClassDef) for node in owner.body]
    for node in public + methods:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            given = [arg.arg for arg in node.args.posonlyargs + node.args.args if arg.arg not in ("self", "cls")]
            name = f"{path.stem}.{node.name}"
            assert len(given) <= 2 or name in MORE_POSITIONAL_ARGUMENTS, f"{name}, line {node.lineno}: {given}"


def test_configs_hold_no_python():
    assert not list((ROOT / "configs").rglob("*.py"))
