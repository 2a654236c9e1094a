"""AlbertConfig: the shape of a model, as in the released `albert_config.json` files."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from albert_tf import sharing
from albert_tf.errors import UserError, nearest_names
from albert_tf.files import read_json, write_json

ACTIVATIONS = ("gelu_tanh", "gelu_erf", "relu", "tanh", "linear")

# In an albert_config.json "gelu" is the tanh approximation: google-research/albert computes nothing else.
_JSON_TO_ACTIVATION = {"gelu": "gelu_tanh"}
_ACTIVATION_TO_JSON = {ours: theirs for theirs, ours in _JSON_TO_ACTIVATION.items()}

# Keys of released files that change nothing in the model. They are accepted and written back unchanged.
INERT_KEYS = ("net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep", "down_scale_factor", "ln_type")

_BERT_ONLY_MESSAGE = (
    "it has no `embedding_size`, so it looks like a BERT configuration. ALBERT needs the width of its factorised "
    "embeddings (128 in every released model); add `embedding_size`"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The hyperparameters that fix an ALBERT model's variables and computation (paper section 3; TF1 modeling.py).

    The six sizes have no default: a file that omits one is an error, not silently an xxlarge model.
    `parameter_sharing` is this project's only key of its own; see `albert_tf.sharing`.
    """

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    parameter_sharing: str = "all"
    hidden_act: str = "gelu_tanh"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    inert: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type is int:
                _check_positive_int(field.name, getattr(self, field.name))
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            _check_number(name, getattr(self, name), low=0.0, high=1.0)
        _check_number("initializer_range", self.initializer_range, low=0.0, high=float("inf"))
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                "`hidden_size` must be a multiple of `num_attention_heads`; "
                f"received {self.hidden_size} and {self.num_attention_heads}"
            )
        if self.hidden_act not in ACTIVATIONS:
            raise UserError(
                f"`hidden_act` must be a known activation; received {self.hidden_act!r}; "
                + nearest_names(str(self.hidden_act), [*ACTIVATIONS, "gelu"])
            )
        unknown = set(self.inert) - set(INERT_KEYS)
        if unknown:
            raise UserError(f"`inert` may only hold {', '.join(INERT_KEYS)}; received {', '.join(sorted(unknown))}")
        sharing.sharing_plan(
            self.num_hidden_layers,
            mode=self.parameter_sharing,
            num_groups=self.num_hidden_groups,
            inner_group_num=self.inner_group_num,
        )

    @property
    def attention_head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AlbertConfig":
        """Builds a configuration from the keys of an `albert_config.json`; unknown and missing keys raise UserError."""
        if not isinstance(values, dict):
            raise UserError(f"a configuration must be a JSON object; received {type(values).__name__}")
        fields = {field.name: field for field in dataclasses.fields(cls) if field.name != "inert"}
        for key in values:
            if key not in fields and key not in INERT_KEYS:
                raise UserError(f"unknown key {key!r}; {nearest_names(key, [*fields, *INERT_KEYS])}")
        missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in values]
        if missing == ["embedding_size"]:
            raise UserError(_BERT_ONLY_MESSAGE)
        if missing:
            raise UserError(f"missing key(s) {', '.join(missing)}")
        own = {name: values[name] for name in fields if name in values}
        if "hidden_act" in own:
            own["hidden_act"] = _JSON_TO_ACTIVATION.get(str(own["hidden_act"]), own["hidden_act"])
        return cls(**own, inert={key: values[key] for key in INERT_KEYS if key in values})

    def to_dict(self) -> dict[str, Any]:
        """Returns the keys of an `albert_config.json`; `parameter_sharing` only where it is not the original's."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values.update(values.pop("inert"))
        values["hidden_act"] = _ACTIVATION_TO_JSON.get(self.hidden_act, self.hidden_act)
        if self.parameter_sharing == "all":
            del values["parameter_sharing"]
        return values

    @classmethod
    def load(cls, path: str | Path) -> "AlbertConfig":
        """Reads an `albert_config.json`; errors name the file."""
        values = read_json(Path(path), what="configuration file")
        try:
            return cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Writes an `albert_config.json`."""
        write_json(Path(path), self.to_dict())

    def to_json(self) -> str:
        """Returns the configuration as one line of JSON."""
        return json.dumps(self.to_dict())


def _check_positive_int(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"`{name}` must be a positive integer; received {value!r}")


def _check_number(name: str, value: Any, *, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < high:
        raise UserError(f"`{name}` must be a number of at least {low} and below {high}; received {value!r}")
