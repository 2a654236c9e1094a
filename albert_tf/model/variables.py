"""A model's variables by the original's TF1 names."""

import re
from typing import Any

import tensorflow as tf

from albert_tf.architecture.sharing import BlockIndex
from albert_tf.architecture.weight_names import weight_names
from albert_tf.model.heads import AlbertWithHeads

_INDEXED = re.compile(r"(\w+)\((\d+),(\d+)\)")


def named_variables(model: AlbertWithHeads) -> dict[str, tf.Variable]:
    """Returns the model's variables by TF1 name, in the order of the table; each variable exactly once."""
    names = weight_names(model.config, model.head_names, num_labels=model.num_labels, pooler=model.has_pooler)
    named = {name.tf1_name: _resolve(model, name.path).value for name in names}
    if len(named) != len(model.trainable_variables):
        raise RuntimeError(f"the table names {len(named)} variables, the model has {len(model.trainable_variables)}")
    return named


def _resolve(root: Any, path: str) -> Any:
    for part in path.split("."):
        indexed = _INDEXED.fullmatch(part)
        root = (
            getattr(root, indexed[1])(BlockIndex(int(indexed[2]), int(indexed[3]))) if indexed else getattr(root, part)
        )
    return root
