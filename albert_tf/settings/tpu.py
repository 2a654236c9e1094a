"""What the command tpu_aot can be told."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.settings.options import option, require

CHIPS = ("v3", "v4", "v5e", "v5p", "v6e")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuAotConfig:
    """Flags of albert_tf.tpu_aot."""

    albert_config_file: str = option("Shapes of models: a comma-separated list of paths and globs.")
    chips: str = option("Comma-separated: v3 (a core), v4, v5e, v5p, v6e (a chip).", default=",".join(CHIPS))
    max_seq_length: int = option("Length of the records.", default=512)
    max_predictions_per_seq: int = option("Masked slots of the records.", default=77)
    largest_batch: int = option("Examples of one replica to begin with; halved until they fit.", default=512)
    remat: bool = option("As --remat of run_pretraining.", default=False)
    fast: bool = option("Compile with less optimisation: several times faster, about the same memory.", default=True)

    def __post_init__(self) -> None:
        for name in ("max_seq_length", "max_predictions_per_seq", "largest_batch"):
            require(self, name, at_least=1)
        if not self.chip_names or set(self.chip_names) - set(CHIPS):
            raise UserError(f"--chips must be among {', '.join(CHIPS)}; received {self.chips!r}")

    @property
    def chip_names(self) -> list[str]:
        """The chips as a list."""
        return [chip for chip in self.chips.split(",") if chip]
