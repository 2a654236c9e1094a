"""AlbertConfig: the shape of a model, as in released `albert_config.json` and Hugging Face `config.json` files."""

import dataclasses
from pathlib import Path
from typing import Any

from albert_tf.architecture import sharing
from albert_tf.errors import UserError, nearest_names
from albert_tf.files import read_json, write_json

ACTIVATIONS = ("gelu_tanh", "gelu_erf", "relu", "tanh", "linear")

# In an albert_config.json "gelu" is the tanh approximation: google-research/albert computes nothing else.
_JSON_TO_ACTIVATION = {"gelu": "gelu_tanh"}
_ACTIVATION_TO_JSON = {ours: theirs for theirs, ours in _JSON_TO_ACTIVATION.items()}

# Keys of released files that change nothing in the model. They are accepted and written back unchanged.
INERT_KEYS = ("net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep", "down_scale_factor", "ln_type")

# "gelu" is the exact one in a Hugging Face config.json. The first of several names for one function is written.
_HUGGING_FACE_TO_ACTIVATION = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
}
_ACTIVATION_TO_HUGGING_FACE = {"gelu_tanh": "gelu_new", "gelu_erf": "gelu"}

# Keys by which a Hugging Face config.json is known, keys that change what is computed with the one value that is
# computed here, and what is written where nothing else is known.
_HUGGING_FACE_ONLY = {"model_type", "architectures", "transformers_version"}
_HUGGING_FACE_FIXED: dict[str, Any] = {
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}
_HUGGING_FACE_DEFAULTS = {"model_type": "albert", "layer_norm_eps": 1e-12, "tie_word_embeddings": True}

_OWN_KEYS = ("parameter_sharing", "classifier_dropout_prob", "hugging_face")

_BERT_ONLY_MESSAGE = (
    "it has no `embedding_size`, so it looks like a BERT configuration. ALBERT needs the width of its factorised "
    "embeddings (128 in every released model); add `embedding_size`"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The hyperparameters that fix an ALBERT model's variables and computation (paper section 3; TF1 modeling.py).

    The six sizes have no default: a file that omits one is an error, not silently an xxlarge model.
    Keys of this project's own are written only where they say something: `parameter_sharing` (see
    `albert_tf.architecture.sharing`), `classifier_dropout_prob` (of the heads of fine-tuned models) and `hugging_face`,
    the keys of a Hugging Face `config.json` that change nothing in the computation, carried along.
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
    classifier_dropout_prob: float = 0.1
    hugging_face: dict[str, Any] = dataclasses.field(default_factory=dict)
    inert: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type is int:
                _check_positive_int(field.name, getattr(self, field.name))
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
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
        if not isinstance(self.hugging_face, dict):
            raise UserError(f"`hugging_face` must be a JSON object; received {self.hugging_face!r}")
        _ = self.sharing_plan  # refuses what cannot be shared so

    @property
    def sharing_plan(self) -> tuple[sharing.LayerWeights, ...]:
        """The weights of every executed block, in order."""
        return sharing.sharing_plan(
            self.num_hidden_layers,
            mode=self.parameter_sharing,
            num_groups=self.num_hidden_groups,
            inner_group_num=self.inner_group_num,
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AlbertConfig":
        """Builds a configuration from the keys of an `albert_config.json`; unknown and missing keys raise UserError."""
        if not isinstance(values, dict):
            raise UserError(f"a configuration must be a JSON object; received {type(values).__name__}")
        fields = {field.name: field for field in dataclasses.fields(cls) if field.name != "inert"}
        required = [n for n, f in fields.items() if dataclasses.MISSING is f.default is f.default_factory]
        missing = [name for name in required if name not in values]
        if missing == ["embedding_size"]:
            raise UserError(_BERT_ONLY_MESSAGE)
        known = [*fields, *INERT_KEYS]
        unknown = [f"unknown key {key!r}; {nearest_names(key, known)}" for key in values if key not in known]
        if unknown:
            raise UserError(". ".join(unknown))
        if missing:
            raise UserError(f"missing key(s) {', '.join(missing)}")
        own = {name: values[name] for name in fields if name in values}
        if "hidden_act" in own:
            own["hidden_act"] = _JSON_TO_ACTIVATION.get(str(own["hidden_act"]), own["hidden_act"])
        return cls(**own, inert={key: values[key] for key in INERT_KEYS if key in values})

    def to_dict(self) -> dict[str, Any]:
        """Returns the keys of an `albert_config.json`; those that the original lacks only where they differ from it."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values.update(values.pop("inert"))
        values["hidden_act"] = _ACTIVATION_TO_JSON.get(self.hidden_act, self.hidden_act)
        for field in dataclasses.fields(self):
            if field.name in _OWN_KEYS and values[field.name] in (field.default, {}):
                del values[field.name]
        return values

    @classmethod
    def from_hugging_face(cls, values: dict[str, Any]) -> "AlbertConfig":
        """Builds a configuration from a Hugging Face `config.json`.

        Keys that would change the computation raise UserError; those that do not are kept in `hugging_face`.
        """
        _check_hugging_face(values)
        own_names = {field.name for field in dataclasses.fields(cls)} - {"inert", "hugging_face", "parameter_sharing"}
        own = {key: value for key, value in values.items() if key in own_names or key in INERT_KEYS}
        if own.get("classifier_dropout_prob", 0.0) is None:
            del own["classifier_dropout_prob"]
        if "hidden_act" in own:
            own["hidden_act"] = _HUGGING_FACE_TO_ACTIVATION.get(str(own["hidden_act"]), own["hidden_act"])
        carried = {key: value for key, value in values.items() if key not in own}
        return cls.from_dict({**own, "hugging_face": carried})

    def to_hugging_face(self) -> dict[str, Any]:
        """Returns the keys of a Hugging Face `config.json`; what that cannot express raises UserError."""
        config = self.with_groups_only()
        layers, groups = config.num_hidden_layers, config.num_hidden_groups
        theirs = [int(layer / (layers / groups)) for layer in range(layers)]  # transformers' rounding
        ours = [weights.attention.group for weights in config.sharing_plan[:: config.inner_group_num]]
        if theirs != ours or set(ours) != set(range(groups)):
            raise UserError(
                f"Hugging Face's ALBERT assigns {layers} layers to {groups} groups in another way than the original "
                "(its rounding differs), so that the model would compute something else there"
            )
        values = {key: value for key, value in config.to_dict().items() if key != "hugging_face"}
        return {
            **_HUGGING_FACE_DEFAULTS,
            **self.hugging_face,
            **values,
            "hidden_act": _ACTIVATION_TO_HUGGING_FACE.get(self.hidden_act, self.hidden_act),
            "classifier_dropout_prob": self.classifier_dropout_prob,
        }

    def with_groups_only(self) -> "AlbertConfig":
        """Returns the same model without `parameter_sharing`, which the published formats do not have.

        `none` is as many groups as layers; sharing only one half of a block raises UserError.
        """
        if self.parameter_sharing == "all":
            return self
        groups = dataclasses.replace(self, parameter_sharing="all", num_hidden_groups=self.num_hidden_layers)
        if groups.sharing_plan != self.sharing_plan:
            raise UserError(
                f"`parameter_sharing` {self.parameter_sharing!r} with {self.num_hidden_layers} layers exists only in "
                "this project: TF1 and Hugging Face share whole groups of layers"
            )
        return groups

    @classmethod
    def load(cls, path: str | Path) -> "AlbertConfig":
        """Reads an `albert_config.json`, or a Hugging Face `config.json`; errors name the file."""
        values = read_json(Path(path), what="configuration file")
        is_hugging_face = isinstance(values, dict) and not _HUGGING_FACE_ONLY.isdisjoint(values)
        try:
            return cls.from_hugging_face(values) if is_hugging_face else cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Writes an `albert_config.json`."""
        write_json(Path(path), self.to_dict())


def _check_hugging_face(values: dict[str, Any]) -> None:
    """Raises UserError for a Hugging Face configuration of another model, or of an ALBERT that computes differently."""
    architectures = values.get("architectures") or []
    model_type = values.get("model_type") or ("albert" if str(architectures[:1]).startswith("['Albert") else None)
    if model_type != "albert":
        reason = ""
        if model_type == "bert":
            reason = ": BERT gives each layer weights of its own and does not factorise its embeddings"
        raise UserError(f"`model_type` must be 'albert'; received {model_type!r}{reason}")
    for key, only in _HUGGING_FACE_FIXED.items():
        if key in values and (values[key] or None) != (only or None):
            raise UserError(f"`{key}` must be {only!r}, the only value this project computes; received {values[key]!r}")


def _check_positive_int(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"`{name}` must be a positive integer; received {value!r}")


def _check_number(name: str, value: Any, *, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < high:
        raise UserError(f"`{name}` must be a number of at least {low} and below {high}; received {value!r}")
