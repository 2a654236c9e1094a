"""README.md says what the Makefile does, and its claims about files and sizes are true."""

import re
import shlex

import pytest
from conftest import ROOT

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.costs import count_weights
from albert_tf.settings.command_line import parse_flags
from albert_tf.settings.conversion import ConvertConfig
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf.settings.pretraining import PretrainConfig

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


@pytest.mark.slow
def test_continued_pretraining_works_as_it_is_described(served_checkpoint, alice_text, tmp_path, capsys):
    from albert_tf.checkpoints.converter import convert
    from albert_tf.pretraining.pretraining_run import pretrain
    from albert_tf_data_prep.pretraining_records import create_records

    section = README.split("## Published checkpoints")[1].split("\n## ")[0].replace("\\\n", " ")
    conversion, _, records, training = re.findall(r"^python (.*)$", section, flags=re.MULTILINE)
    places = {"=albert_base": f"={served_checkpoint}", "=my_text/*.txt": f"={alice_text}", "=runs/": f"={tmp_path}/",
              "=configs/": f"={ROOT}/configs/"}  # fmt: skip

    def flags_of(command, *small):
        flags = shlex.split(command)[1:]
        for name, place in places.items():
            flags = [flag.replace(name, place) for flag in flags]
        return ["command", *(flag for flag in flags if flag.startswith("--")), *small]

    convert(parse_flags(ConvertConfig, flags_of(conversion)))
    small = ("--max_seq_length=64", "--eval_fraction=0.3", "--num_workers=1", "--dupe_factor=1")
    create_records(parse_flags(RecordsConfig, flags_of(records, *small)))
    small = ("--num_train_steps=4", "--num_warmup_steps=1", "--save_checkpoints_steps=2", "--precision=float32")
    config = parse_flags(PretrainConfig, flags_of(training, *small))
    assert config.train_batch_size == 32 and pretrain(config) == 0
    summary = capsys.readouterr().out
    assert re.search(r"On \d+ held-out examples", summary) and "Step 4 of 4" in summary


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
