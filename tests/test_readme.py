"""README.md says what the Makefile does, and its claims about files and sizes are true."""

import re

from conftest import ROOT

from albert_tf.config import AlbertConfig
from albert_tf.memory import count_weights

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def commands_of(text):
    """Returns the project's commands in a text, as sets of words, with continuation lines joined."""
    text = text.replace("\\\n", " ")
    lines = [line.split("$(BIN)/")[-1].strip() for line in text.splitlines()]
    return [set(line.replace("'", "").split()) for line in lines if re.match(r"python (data_prep|-m albert_tf)", line)]


def test_the_steps_are_those_of_make_demo():
    variables = dict(re.findall(r"^(\w+) :?= ?(.+)$", MAKEFILE, flags=re.MULTILINE))
    expanded = MAKEFILE.replace("$(DEMO)", variables["DEMO"]).replace("$(BOOKS)", variables["BOOKS"])
    steps = README.split("## The steps")[1].split("\n## ")[0]
    assert len(commands_of(steps)) == 3
    assert commands_of(steps) == commands_of(expanded)


def test_the_table_of_configurations_is_right():
    rows = re.findall(r"^\| `(albert_\w+\.json)` \| (\d+) × (\d+) \| ([\d,]+) \|", README, flags=re.MULTILINE)
    shapes = {p.name for p in (ROOT / "configs").glob("albert_*.json") if not p.stem.endswith("_v1")}
    assert {row[0] for row in rows} == shapes - {"albert_demo.json"}
    for name, layers, hidden, weights in rows:
        config = AlbertConfig.load(ROOT / "configs" / name)
        assert (config.num_hidden_layers, config.hidden_size) == (int(layers), int(hidden))
        assert count_weights(config) == int(weights.replace(",", ""))


def test_files_that_are_named_exist():
    for name in re.findall(r"`((?:tests|configs|data_prep)/[\w./]+|[A-Z]+(?:\.md)?)`", README):
        assert (ROOT / name).exists(), name


def test_both_commands_stand_at_the_top():
    assert README.index("make demo") < README.index("make test") < 1200
