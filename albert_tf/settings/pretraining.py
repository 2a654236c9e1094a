"""What the command run_pretraining can be told."""

import dataclasses
import math
from typing import ClassVar

from albert_tf.errors import UserError
from albert_tf.settings.options import MIN_SEQ_LENGTH, PRECISIONS, option
from albert_tf.settings.options import require as _require

OPTIMIZERS = ("lamb", "adamw")
OUTPUT_BIAS_STARTS = ("zeros", "unigram")

# Of the published pre-training with LAMB (paper section 4.1; README of TF1 ALBERT).
PUBLISHED_LEARNING_RATE, PUBLISHED_BATCH_SIZE = 0.00176, 4096
PUBLISHED_TRAIN_STEPS, PUBLISHED_WARMUP_STEPS = 125_000, 3125


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Flags of albert_tf.run_pretraining; the original's names and defaults where it has them."""

    albert_config_file: str = option("Shape of the model: an albert_config.json.")
    output_dir: str = option("Where checkpoints, logs and metrics go; a run found there is continued.")
    input_file: str | None = option("Training records: a comma-separated list of paths and globs.", default=None)
    eval_input_file: str | None = option("Held-out records, evaluated at every checkpoint.", default=None)
    export_dir: str | None = option("Write a SavedModel of the encoder to <export_dir>/1 at the end.", default=None)
    init_checkpoint: str | None = option(
        "Start from the weights of this run, TF1 checkpoint or Hugging Face directory.", default=None
    )
    spm_model_file: str | None = option("Tokenizer of records that have no manifest beside them.", default=None)
    do_lower_case: bool | None = option("With --spm_model_file: whether the records are lower case.", default=None)
    max_seq_length: int | None = option("Length of the records, to be checked. Unset: what it is.", default=None)
    max_predictions_per_seq: int | None = option(
        "Masked slots of the records, to be checked. Unset: what they are.", default=None
    )
    do_train: bool | None = option("Train. Unset: unless --do_eval is given alone.", default=None)
    do_eval: bool | None = option(
        "Evaluate on --eval_input_file; without --do_train: evaluate the newest checkpoint and end. "
        "Unset: if --eval_input_file is given.",
        default=None,
    )
    dry_run: bool = option("Check everything, say what would run, and end.", default=False)
    train_batch_size: int = option("Examples in a step, over all replicas.", default=PUBLISHED_BATCH_SIZE)
    eval_batch_size: int = option("Examples in an evaluation step, over all replicas.", default=64)
    gradient_accumulation_steps: int = option(
        "Micro-batches that a replica works through in a step, to save memory; the update changes by rounding only.",
        default=1,
    )
    remat: bool = option(
        "Compute each layer again in the backward pass: less memory, a third more work, another rounding.",
        default=False,
    )
    optimizer: str = option("lamb or adamw, as ALBERT defines them.", default="lamb", choices=OPTIMIZERS)
    learning_rate: float | None = option(
        "Peak learning rate. Unset: 0.00176 x sqrt(train_batch_size / 4096), from the published one.", default=None
    )
    poly_power: float = option("Power of the polynomial decay.", default=1.0)
    num_train_steps: int = option("Steps of the whole run.", default=PUBLISHED_TRAIN_STEPS)
    num_warmup_steps: int | None = option(
        "Steps of linear warm-up. Unset: 3125, at most a tenth of the run.", default=None
    )
    start_warmup_step: int = option("Step at which warm-up begins.", default=0)
    save_checkpoints_steps: int = option("Steps between checkpoints with evaluation.", default=5000)
    save_checkpoints_secs: float = option("Most seconds without a checkpoint.", default=900.0)
    keep_checkpoint_max: int = option("How many of the newest checkpoints are kept, beside the best.", default=5)
    max_rollbacks: int = option("How often a run that diverges goes back to a checkpoint.", default=3)
    max_loss_jump: float = option(
        "The loss has diverged when the median of 8 steps exceeds this times that of the 128 before. 0: never.",
        default=1.5,
    )
    iterations_per_loop: str = option(
        "Training steps per device call; auto: as many as take 2 to 10 seconds.", default="auto"
    )
    max_eval_steps: int | None = option("Most evaluation steps. Unset: every record.", default=None)
    init_output_bias: str = option(
        "Start the bias of the masked-token output at 0 (the original) or at the log of the token frequencies.",
        default="zeros",
        choices=OUTPUT_BIAS_STARTS,
    )
    profile_steps: int = option(
        "Write a TensorBoard trace of this many steps, those after the first loop, to <output_dir>/profile.", default=0
    )
    precision: str = option(
        "Of the computation; weights are float32. auto: bfloat16 where the hardware has it.",
        default="auto",
        choices=PRECISIONS,
    )
    random_seed: int = option("Seed of initial weights, data order and dropout.", default=12345)
    tpu: str | None = option("TPU to train on: local, a name, or grpc://host:port.", default=None, url=True)
    tpu_zone: str | None = option("Zone of a TPU given by name. Unset: this machine's.", default=None)
    gcp_project: str | None = option("Project of a TPU given by name. Unset: this machine's.", default=None)

    # Flags of the original that are gone, and what stands for them.
    REPLACED: ClassVar[dict[str, str]] = {
        "use_tpu": "--tpu says it: local, a name or an address",
        "tpu_name": "use --tpu=NAME",
        "master": "use --tpu=grpc://host:port",
        "num_tpu_cores": "all cores of the TPU are used",
        "masked_lm_budget": "the original could not train with it; records hold their masks",
        "init_from_group0": "--init_checkpoint takes a checkpoint with the groups of the configuration",
    }

    def __post_init__(self) -> None:
        for name in ("train_batch_size", "eval_batch_size", "gradient_accumulation_steps", "num_train_steps",
                     "save_checkpoints_steps", "keep_checkpoint_max", "max_predictions_per_seq",
                     "max_eval_steps"):  # fmt: skip
            _require(self, name, at_least=1)
        for name in ("num_warmup_steps", "start_warmup_step", "random_seed", "max_rollbacks", "profile_steps"):
            _require(self, name, at_least=0)
        for name in ("learning_rate", "poly_power"):
            _require(self, name, at_least=0.0)
        _require(self, "max_seq_length", at_least=MIN_SEQ_LENGTH)
        _require(self, "save_checkpoints_secs", at_least=1.0)
        if self.max_loss_jump:
            _require(self, "max_loss_jump", at_least=1.1)
        if self.iterations_per_loop != "auto" and not (
            self.iterations_per_loop.isdecimal() and 0 < int(self.iterations_per_loop) < 2**63
        ):
            raise UserError(f"--iterations_per_loop must be auto or a positive integer; "
                            f"received {self.iterations_per_loop!r}")  # fmt: skip
        if self.warmup_steps + self.start_warmup_step > self.num_train_steps:
            raise UserError(
                "--num_warmup_steps (with --start_warmup_step) may not exceed --num_train_steps; "
                f"received {self.warmup_steps + self.start_warmup_step} and {self.num_train_steps} (a flag file counts "
                "too; what comes behind it on the command line is in force)"
            )
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raises UserError for flags that make no sense together."""
        if self.trains and not self.input_file:
            raise UserError(
                "--input_file must be given to train; to evaluate a finished run, give --do_eval without --do_train"
            )
        if self.do_eval and not self.eval_input_file:
            raise UserError("--do_eval needs --eval_input_file")
        if not self.input_file and not self.eval_input_file:
            raise UserError("--input_file or --eval_input_file must be given")
        if self.init_checkpoint is not None and self.init_output_bias != "zeros":
            raise UserError(
                f"--init_output_bias={self.init_output_bias} and --init_checkpoint exclude each other: "
                "the checkpoint has an output bias"
            )
        if self.do_lower_case is not None and self.spm_model_file is None:
            raise UserError("--do_lower_case needs --spm_model_file; a manifest beside the records says it by itself")
        if (self.tpu_zone or self.gcp_project) and self.tpu is None:
            raise UserError("--tpu_zone and --gcp_project need --tpu=NAME")

    @property
    def trains(self) -> bool:
        """Whether to train: as told, or unless `--do_eval` is given alone."""
        return not self.do_eval if self.do_train is None else self.do_train

    @property
    def evaluates(self) -> bool:
        """Whether to evaluate: as told, or where there are held-out records."""
        return self.eval_input_file is not None if self.do_eval is None else self.do_eval

    @property
    def peak_learning_rate(self) -> float:
        """The given rate, or the published one for a batch of 4096, scaled by the square root."""
        if self.learning_rate is not None:
            return self.learning_rate
        return PUBLISHED_LEARNING_RATE * math.sqrt(self.train_batch_size / PUBLISHED_BATCH_SIZE)

    @property
    def warmup_steps(self) -> int:
        """The given steps of warm-up, or the published ones, at most a tenth of the run."""
        if self.num_warmup_steps is not None:
            return self.num_warmup_steps
        return min(PUBLISHED_WARMUP_STEPS, self.num_train_steps // 10)
