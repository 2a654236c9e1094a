import json

import checks
import pytest
from conftest import GOLDEN

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import weight_names
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables


@pytest.mark.parametrize("case", ["plain", "groups2_slots"])
def test_names_and_shapes_are_those_of_the_originals_checkpoints(case):
    directory = GOLDEN / "tf1_checkpoint" / case
    recorded = json.loads((directory / "variables.json").read_text())
    expected = {n: s for n, s, _ in recorded if not n.endswith(("adam_m", "adam_v", "global_step"))}
    model = AlbertWithHeads(AlbertConfig.load(directory / "albert_config.json"))
    assert {name: list(variable.shape) for name, variable in named_variables(model).items()} == expected


@pytest.mark.parametrize("mode", ["all", "attention", "ffn", "none"])
def test_every_variable_has_exactly_one_name(mode):
    model = AlbertWithHeads(checks.tiny_config(parameter_sharing=mode))
    variables = named_variables(model)
    assert len({id(v) for v in variables.values()}) == len(variables) == len(model.trainable_variables)
    names = weight_names(model.config, model.head_names)
    assert len({name.path for name in names}) == len({name.tf1_name for name in names}) == len(names)
