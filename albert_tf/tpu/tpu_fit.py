"""Whether the training step of one replica compiles for TPUs, and how large a batch fits, without a TPU.

The step that `run_pretraining` gives to `strategy.run` is lowered to StableHLO and compiled by `tpu_compiler`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from albert_tf.architecture.config import AlbertConfig
from albert_tf.files import expand_globs
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.precision import dtype_policy
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
from albert_tf.settings.pretraining import PUBLISHED_LEARNING_RATE, PUBLISHED_TRAIN_STEPS, PUBLISHED_WARMUP_STEPS
from albert_tf.settings.tpu import TpuAotConfig
from albert_tf.tpu.tpu_compiler import Compiled, check_installed, compile_module
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.training.step import Objective, Trainee, train_step

_GIB = 2**30
_COLUMNS = ("model", "chip", "largest batch", "GiB", "TFLOP a step", "shapes", "twice the batch")


class StepLowering:
    """The training step of `run_pretraining` (bfloat16, LAMB, both heads), lowered for any batch size."""

    def __init__(
        self, config: AlbertConfig, *, max_seq_length: int, max_predictions_per_seq: int, remat: bool = False
    ) -> None:
        self._lengths = (max_seq_length, max_predictions_per_seq)
        model = AlbertWithHeads(config, remat=remat, dtype=dtype_policy("bfloat16"))
        variables = named_variables(model)
        schedule = LearningRateSchedule(
            PUBLISHED_LEARNING_RATE, num_train_steps=PUBLISHED_TRAIN_STEPS, num_warmup_steps=PUBLISHED_WARMUP_STEPS
        )
        self._trainee = Trainee.create(model, variables, AlbertOptimizer("lamb", variables, schedule=schedule))
        self._objective = Objective(pretraining_loss, pretraining_metric_names(model.head_names))

    @property
    def variable_bytes(self) -> int:
        """The bytes of the weights and their moments, all of which the step updates."""
        variables = [*self._trainee.variables.values(), *self._trainee.optimizer.slots.values()]
        return sum(4 * variable.shape.num_elements() for variable in variables)

    def lower(self, batch_size: int) -> bytes:
        """Returns serialised StableHLO; an operation that XLA cannot compile raises ValueError, with its name."""
        length, predictions = self._lengths
        widths = {"input_ids": length, "input_mask": length, "segment_ids": length, "masked_lm_positions": predictions,
                  "masked_lm_ids": predictions, "next_sentence_labels": 1}  # fmt: skip
        specs = {name: tf.TensorSpec([batch_size, width], tf.int32) for name, width in widths.items()}
        specs["masked_lm_weights"] = tf.TensorSpec([batch_size, predictions], tf.float32)
        specs["example_weights"] = tf.TensorSpec([batch_size], tf.float32)

        @tf.function(jit_compile=True, autograph=False)
        def step(*tensors: tf.Tensor) -> tf.Tensor:  # the lowering takes no dictionaries
            batch = dict(zip(specs, tensors, strict=True))
            return train_step(batch, trainee=self._trainee, objective=self._objective, random_seed=1)

        return step.experimental_get_compiler_ir(*specs.values())(stage="stablehlo_serialized")


def report(config: TpuAotConfig) -> None:
    """Prints a Markdown table: for each model and chip the largest batch that fits, of powers of two."""
    check_installed()
    print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
    for path in expand_globs(config.albert_config_file, flag="--albert_config_file"):
        lowering = StepLowering(
            AlbertConfig.load(path),
            max_seq_length=config.max_seq_length,
            max_predictions_per_seq=config.max_predictions_per_seq,
            remat=config.remat,
        )
        name = path.stem + (", remat" if config.remat else "")
        for batch_size, result, refused in largest_batches(lowering, config):
            print(f"| {' | '.join([name, *_cells(batch_size, result, refused)])} |", flush=True)


def largest_batches(lowering: StepLowering, config: TpuAotConfig) -> Iterator[tuple[int, Compiled, str]]:
    """Yields, for each chip, a batch size with what it gave, and what twice as large a batch had needed.

    Sizes are halved from the largest until one fits, since the compiler refuses within seconds what does not fit.
    """
    waiting = dict.fromkeys(config.chip_names, "")
    batch_size = config.largest_batch
    while waiting and batch_size:
        with tempfile.TemporaryDirectory() as directory:
            module = Path(directory) / "step.stablehlo"
            module.write_bytes(lowering.lower(batch_size))
            results = compile_module(module, list(waiting), fast=config.fast)
        for result in results:
            if result.out_of_memory and batch_size > 1:
                waiting[result.chip] = result.out_of_memory
            else:
                yield batch_size, result, waiting.pop(result.chip)
        batch_size //= 2


def _cells(batch_size: int, result: Compiled, refused: str) -> list[str]:
    shapes = "static" if not result.dynamic_shapes else f"dynamic: {', '.join(result.dynamic_shapes)}"
    if result.out_of_memory:
        return [result.chip, "none", result.out_of_memory, "", shapes, ""]
    if result.error:
        return [result.chip, "does not compile", result.error, "", shapes, ""]
    size = f"{result.needed_bytes / _GIB:.2f}"
    return [result.chip, str(batch_size), size, f"{result.flops / 1e12:.2f}", shapes, refused or "not tried"]
