"""What a pre-training run will do, checked and said before it begins."""

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import Any

import tensorflow as tf

from albert_tf.architecture import costs
from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.weight_names import SENTENCE_ORDER, weight_names
from albert_tf.checkpoints.opening import open_checkpoint, require_weights
from albert_tf.errors import UserError
from albert_tf.model.precision import resolve_precision
from albert_tf.pretraining.record_data import RunData, describe_records
from albert_tf.settings.pretraining import PUBLISHED_BATCH_SIZE, PUBLISHED_LEARNING_RATE, PretrainConfig
from albert_tf.training import distribution, host_memory, run_directory
from albert_tf.training.kept_checkpoints import saved_steps
from albert_tf.training.workers import Agreement

# Settings that decide the weights; a run is continued only with the values that it was started with.
_DECIDING = (
    "optimizer", "poly_power", "num_train_steps", "start_warmup_step", "train_batch_size", "random_seed",
    "init_output_bias", "init_checkpoint", "max_loss_jump",
)  # fmt: skip

_PLACES = ("albert_config_file", "input_file", "eval_input_file", "spm_model_file", "output_dir", "export_dir")

_GIB = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What was decided about a run, and the lines that say so."""

    precision: str
    num_train_steps: int  # of the run, which an evaluation is not told
    record: dict[str, Any]  # the settings that decide the weights
    held_out: str | None  # identifies the examples that are evaluated
    lines: list[str]


def check_fit(config: PretrainConfig, albert_config: AlbertConfig, *, data: RunData) -> None:
    """Raises UserError unless configuration, tokenizer and records fit together."""
    if data.tokenizer and data.tokenizer.vocab_size != albert_config.vocab_size:
        raise UserError(
            f"{config.albert_config_file} has vocab_size={albert_config.vocab_size}, and the tokenizer of the records "
            f"has {data.tokenizer.vocab_size} pieces; they must be equal: correct vocab_size in a copy of the file"
        )
    if data.shape and data.shape.max_seq_length > albert_config.max_position_embeddings:
        raise UserError(
            f"the records have max_seq_length={data.shape.max_seq_length}, and {config.albert_config_file} has only "
            f"max_position_embeddings={albert_config.max_position_embeddings}; make shorter records or add positions"
        )
    if SENTENCE_ORDER in data.heads and albert_config.type_vocab_size < 2:
        raise UserError(
            f"{config.albert_config_file} has type_vocab_size={albert_config.type_vocab_size}, and records of pairs "
            "need a segment for each text: set it to 2, or make records with --pair_task=none"
        )
    if config.init_output_bias == "unigram" and not data.directory:
        raise UserError("--init_output_bias=unigram needs the token counts that stand beside records with a manifest")
    if config.trains and config.init_checkpoint is not None and not saved_steps(Path(config.output_dir)):
        checkpoint = open_checkpoint(config.init_checkpoint)
        checkpoint.require_same_computation(albert_config)
        require_weights(checkpoint, {name.tf1_name: name.shape for name in weight_names(albert_config, data.heads)})
    if config.trains and config.export_dir and not data.tokenizer:
        raise UserError(
            "--export_dir needs the tokenizer: no manifest stands beside the records, so add --spm_model_file"
        )


def make_plan(
    config: PretrainConfig, albert_config: AlbertConfig, *, data: RunData, strategy: tf.distribute.Strategy
) -> RunPlan:
    """Decides what the flags left open; raises UserError where the run cannot work or is not that of --output_dir."""
    directory = Path(config.output_dir)
    parts = config.gradient_accumulation_steps
    per_replica = config.train_batch_size
    if data.train:
        per_replica = distribution.check_batch_size(per_replica, strategy, flag="train_batch_size", parts=parts)
    if data.evaluation:
        distribution.check_batch_size(config.eval_batch_size, strategy, flag="eval_batch_size")
    recorded = run_directory.recorded_run_config(directory)
    if recorded and config.precision == "auto":
        precision = recorded["precision"]
    else:
        precision = resolve_precision(config.precision, strategy)
    record = {name: getattr(config, name) for name in _DECIDING}
    record |= {"learning_rate": config.peak_learning_rate, "num_warmup_steps": config.warmup_steps}
    record |= {"precision": precision, "heads": list(data.heads)}
    if data.train:
        record["records"] = describe_records(data.train)
    run_directory.check_same_run(
        directory, config=albert_config, run_config=record if data.train else None, tokenizer=data.tokenizer
    )
    lines = [
        f"Model    {costs.count_weights(albert_config):,} weights in the encoder of {config.albert_config_file}",
        f"Devices  {distribution.describe(strategy)}, computing in {precision}",
    ]
    if data.train:
        memory_line = _check_memory(
            albert_config, data, strategy, batch_size=per_replica // parts, precision=precision, remat=config.remat
        )
        lines += [*_training_lines(config, data, per_replica=per_replica), memory_line]
    if data.evaluation:
        lines.append(f"Held out {num_evaluated(config, data):,} examples, evaluated with every checkpoint")
    num_train_steps = recorded["num_train_steps"] if recorded and not config.trains else config.num_train_steps
    held_out = f"{num_evaluated(config, data)} of {describe_records(data.evaluation)}" if data.evaluation else None
    return RunPlan(precision=precision, num_train_steps=num_train_steps, record=record, held_out=held_out, lines=lines)


def check_same_command(
    config: PretrainConfig, albert_config: AlbertConfig, *, plan: RunPlan, strategy: tf.distribute.Strategy
) -> None:
    """Raises UserError unless all workers have the same flags, model, records and precision.

    Workers that do not would train on silently, or wait for each other without end. Where the files lie may differ.
    """
    flags = {name: value for name, value in dataclasses.asdict(config).items() if name not in _PLACES}
    decided = repr((flags, albert_config, plan.record, plan.held_out))
    digest = hashlib.sha256(decided.encode()).digest()
    what = f"flags, models, records or precision (here {plan.precision})"
    Agreement(strategy).check_equal(int.from_bytes(digest[:4], "big"), what=what)


def num_evaluated(config: PretrainConfig, data: RunData) -> int:
    """Returns the number of held-out examples that an evaluation uses."""
    if data.evaluation is None:
        return 0
    most = (config.max_eval_steps or data.evaluation.num_examples) * config.eval_batch_size
    return min(data.evaluation.num_examples, most)


def _training_lines(config: PretrainConfig, data: RunData, *, per_replica: int) -> list[str]:
    records, parts = data.shape, config.gradient_accumulation_steps
    epochs = config.num_train_steps * config.train_batch_size / records.num_examples
    rate = f"{config.peak_learning_rate:.4g}"
    if config.learning_rate is None:
        rate += (
            f" (the published {PUBLISHED_LEARNING_RATE} for {PUBLISHED_BATCH_SIZE} examples, "
            "scaled by the square root of the batch)"
        )
    split = f" in {parts} parts of {per_replica // parts}" if parts > 1 else ""
    return [
        f"Data     {records.num_examples:,} examples of {records.max_seq_length} tokens in {len(records.files)} files; "
        f"{epochs:{',.0f' if epochs >= 100 else '.3g'}} epochs",
        f"Steps    {config.num_train_steps:,} with {config.train_batch_size:,} examples, {per_replica:,} on a "
        f"replica{split}",
        f"Rate     {config.optimizer} with a peak of {rate} after {config.warmup_steps:,} steps of warm-up",
    ]


def _check_memory(
    albert_config: AlbertConfig,
    data: RunData,
    strategy: tf.distribute.Strategy,
    *,
    batch_size: int,
    precision: str,
    remat: bool,
) -> str:
    """Returns the line on memory; refuses a batch that this machine cannot hold.

    Accelerators have memory of their own, whose size TensorFlow does not tell, and are not checked.
    """
    estimate = functools.partial(
        costs.estimate_training_bytes,
        albert_config,
        max_seq_length=data.shape.max_seq_length,
        max_predictions_per_seq=data.shape.max_predictions_per_seq,
        bytes_per_value=2 if precision == "bfloat16" else 4,
        remat=remat,
    )
    line = f"Memory   at least {estimate(batch_size=batch_size) / _GIB:.2g} GiB for a replica"
    if remat:
        line += f" ({estimate(batch_size=batch_size, remat=False) / _GIB:.2g} GiB without --remat)"
    if isinstance(strategy, tf.distribute.TPUStrategy) or tf.config.list_physical_devices("GPU"):
        return line
    host_memory.check_host_memory(estimate, batch_size=batch_size)
    available = host_memory.available_host_bytes()
    return line if available is None else f"{line}; {available / _GIB:.3g} GiB available"
