"""Pre-training put together: records, model, optimizer, loop, evaluation, export, and the closing summary."""

import dataclasses
import functools
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import distribution, memory
from albert_tf.checkpoints import (
    RUN_CONFIG_FILE,
    RunCheckpoints,
    assign_weights,
    named_variables,
    read_weights,
    write_run_files,
)
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.files import expand_globs, read_json
from albert_tf.heads import AlbertWithHeads
from albert_tf.input_pipeline import Records, evaluation_dataset, open_records, training_dataset
from albert_tf.loading import open_checkpoint
from albert_tf.losses import pretraining_loss, pretraining_metric_names
from albert_tf.manifest import RecordsDirectory
from albert_tf.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.run_config import PretrainConfig
from albert_tf.summary import summary_lines
from albert_tf.tokenizer import Tokenizer, load_tokenizer
from albert_tf.train_log import TrainLog
from albert_tf.train_loop import Interrupted, LoopSettings, Objective, Trainee, make_evaluator, train
from albert_tf.weight_maps import MASKED_LM, SENTENCE_ORDER

_EXPORT_VERSION = 1

# Settings that decide the weights; a run is continued only with the values that it was started with.
_DECIDING = (
    "optimizer", "learning_rate", "poly_power", "num_train_steps", "num_warmup_steps", "start_warmup_step",
    "train_batch_size", "random_seed", "init_output_bias", "init_checkpoint",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Data:
    """The records of a run and what belongs to them."""

    train: Records
    evaluation: Records | None
    directory: RecordsDirectory | None
    tokenizer: Tokenizer | None

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that the records train: without pairs there is no sentence-order head."""
        if self.directory is not None and self.directory.manifest.pair_task == "none":
            return (MASKED_LM,)
        return (MASKED_LM, SENTENCE_ORDER)

    def token_log_probs(self) -> np.ndarray | None:
        """Returns the log of the add-one frequencies of the training tokens, float32 [vocabulary], if known."""
        if self.directory is None:
            return None
        counts = self.directory.load_token_counts() + 1.0
        return np.log(counts / counts.sum()).astype(np.float32)


def pretrain(config: PretrainConfig) -> int:
    """Runs or continues a pre-training run; returns the exit status.

    Everything that can be wrong with the input is checked before anything is written.
    """
    albert_config = AlbertConfig.load(config.albert_config_file)
    data = _open_data(config)
    _check_fit(config, albert_config, data)
    strategy = distribution.make_strategy(config.tpu)
    per_replica = distribution.check_batch_size(config.train_batch_size, strategy, flag="train_batch_size")
    distribution.check_batch_size(config.eval_batch_size, strategy, flag="eval_batch_size")
    directory = Path(config.output_dir)
    precision = _precision(config, directory, strategy)
    _check_memory(albert_config, data, strategy, batch_size=per_replica, precision=precision)
    write_run_files(
        directory,
        config=albert_config,
        run_config=_run_record(config, data, precision),
        tokenizer=data.tokenizer,
    )
    distribution.describe(strategy, precision=precision, per_replica_batch=per_replica)
    with strategy.scope():
        trainee = _make_trainee(config, albert_config, data, precision)
        checkpoints = RunCheckpoints(
            directory,
            variables=trainee.variables,
            optimizer=trainee.optimizer,
            global_step=trainee.global_step,
            keep=config.keep_checkpoint_max,
        )
        if not checkpoints.restore_latest():
            _initialize(config, trainee, data)
    step = int(trainee.global_step.numpy())
    log = TrainLog(directory, start_step=step, num_train_steps=config.num_train_steps)
    evaluate = _make_evaluate(config, trainee.model, data, strategy)
    try:
        _train_or_say_done(config, trainee, data, strategy, checkpoints=checkpoints, evaluate=evaluate, log=log)
    except tf.errors.DataLossError as error:
        raise UserError(f"a training record is damaged ({error.message}); make the records again") from None
    except Interrupted as stopped:
        logging.info("Stopped at step %d of %d with a checkpoint; the same command goes on from there.",
                     stopped.step, config.num_train_steps)  # fmt: skip
        return 128 + stopped.signal_number if stopped.signal_number == signal.SIGINT else 0
    step = int(trainee.global_step.numpy())
    if evaluate and log.last("eval", step) is None:
        log.write("eval", step, evaluate())
    exported = _export(config, step) if config.export_dir else None
    lines = summary_lines(
        log,
        step=step,
        num_train_steps=config.num_train_steps,
        output_dir=config.output_dir,
        num_held_out=data.evaluation.num_examples if data.evaluation else 0,
        exported=exported,
    )
    print("\n".join(lines))
    return 0


def _open_data(config: PretrainConfig) -> _Data:
    """Opens the records, and finds the tokenizer that made them."""
    files = expand_globs(config.input_file, flag="--input_file")
    directory = RecordsDirectory.of_files(files)
    lengths = {"max_seq_length": config.max_seq_length, "max_predictions_per_seq": config.max_predictions_per_seq}
    train_records = open_records(files, directory=directory, **lengths)
    evaluation = None
    if config.eval_input_file and config.do_eval:
        eval_files = expand_globs(config.eval_input_file, flag="--eval_input_file")
        lengths = {name: getattr(train_records, name) for name in lengths}
        evaluation = open_records(eval_files, directory=RecordsDirectory.of_files(eval_files), **lengths)
    tokenizer = directory.load_tokenizer() if directory else None
    if config.spm_model_file:
        given = load_tokenizer(config.spm_model_file, lower_case=config.do_lower_case)
        if tokenizer and tokenizer.fingerprint != given.fingerprint:
            raise UserError(
                f"--spm_model_file={config.spm_model_file} is not the tokenizer of the records; drop the flag"
            )
        tokenizer = given
    return _Data(train=train_records, evaluation=evaluation, directory=directory, tokenizer=tokenizer)


def _check_fit(config: PretrainConfig, albert_config: AlbertConfig, data: _Data) -> None:
    """Raises UserError unless configuration, tokenizer and records fit together."""
    if data.tokenizer and data.tokenizer.vocab_size != albert_config.vocab_size:
        raise UserError(
            f"{config.albert_config_file} has vocab_size={albert_config.vocab_size}, and the tokenizer of the records "
            f"has {data.tokenizer.vocab_size} pieces; they must be equal: correct vocab_size in a copy of the file"
        )
    if data.train.max_seq_length > albert_config.max_position_embeddings:
        raise UserError(
            f"the records have max_seq_length={data.train.max_seq_length}, and {config.albert_config_file} has only "
            f"max_position_embeddings={albert_config.max_position_embeddings}; make shorter records or add positions"
        )
    if config.export_dir and not data.tokenizer:
        raise UserError(
            "--export_dir needs the tokenizer: no manifest stands beside the records, so add --spm_model_file"
        )
    if config.init_output_bias == "unigram" and not data.directory:
        raise UserError("--init_output_bias=unigram needs the token counts that stand beside records with a manifest")


def _precision(config: PretrainConfig, directory: Path, strategy: tf.distribute.Strategy) -> str:
    """Resolves the precision once for a run: one that is continued keeps what it was started with."""
    if config.precision == "auto" and (directory / RUN_CONFIG_FILE).exists():
        return read_json(directory / RUN_CONFIG_FILE, what="run configuration")["precision"]
    return distribution.resolve_precision(config.precision, strategy)


def _run_record(config: PretrainConfig, data: _Data, precision: str) -> dict[str, Any]:
    record = {name: getattr(config, name) for name in _DECIDING}
    examples = {file.name: count for file, count in zip(data.train.files, data.train.counts, strict=True)}
    return {**record, "precision": precision, "heads": list(data.heads), "examples": examples}


def _check_memory(
    albert_config: AlbertConfig, data: _Data, strategy: tf.distribute.Strategy, *, batch_size: int, precision: str
) -> None:
    """Refuses a batch that this machine cannot hold; accelerators have memory of their own and are not checked."""
    if isinstance(strategy, tf.distribute.TPUStrategy) or tf.config.list_physical_devices("GPU"):
        return
    estimate = functools.partial(
        memory.estimate_training_bytes,
        albert_config,
        max_seq_length=data.train.max_seq_length,
        max_predictions_per_seq=data.train.max_predictions_per_seq,
        bytes_per_value=2 if precision == "bfloat16" else 4,
    )
    memory.check_host_memory(estimate, batch_size=batch_size)


def _make_trainee(config: PretrainConfig, albert_config: AlbertConfig, data: _Data, precision: str) -> Trainee:
    """Creates model, optimizer and step; initial weights follow from the seed."""
    keras.utils.set_random_seed(config.random_seed % 2**32)
    model = AlbertWithHeads(albert_config, heads=data.heads, dtype=distribution.dtype_policy(precision))
    variables = named_variables(model)
    schedule = LearningRateSchedule(
        config.learning_rate,
        num_train_steps=config.num_train_steps,
        num_warmup_steps=config.num_warmup_steps,
        power=config.poly_power,
        start_warmup_step=config.start_warmup_step,
    )
    optimizer = AlbertOptimizer(config.optimizer, variables, schedule=schedule)
    global_step = tf.Variable(
        0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, name="global_step"
    )
    logging.info("%s weights in %d variables", f"{model.count_params():,}", len(variables))
    return Trainee(model=model, variables=variables, optimizer=optimizer, global_step=global_step)


def _initialize(config: PretrainConfig, trainee: Trainee, data: _Data) -> None:
    """Sets what a fresh run does not start at random."""
    if config.init_checkpoint is not None:
        assign_weights(trainee.variables, read_weights(config.init_checkpoint), source=config.init_checkpoint)
    elif config.init_output_bias == "unigram":
        trainee.variables["cls/predictions/output_bias"].assign(data.token_log_probs())


def _make_evaluate(
    config: PretrainConfig, model: AlbertWithHeads, data: _Data, strategy: tf.distribute.Strategy
) -> Any:
    """Returns the function that evaluates on the held-out records, or None without them."""
    if data.evaluation is None:
        return None
    log_probs = data.token_log_probs()
    loss_fn = functools.partial(pretraining_loss, unigram_log_probs=log_probs)
    objective = Objective(loss_fn, pretraining_metric_names(data.heads, unigram=log_probs is not None))
    make_dataset = functools.partial(
        evaluation_dataset, data.evaluation, batch_size=config.eval_batch_size, max_steps=config.max_eval_steps
    )
    return make_evaluator(model, objective, make_dataset, strategy=strategy)


def _train_or_say_done(
    config: PretrainConfig,
    trainee: Trainee,
    data: _Data,
    strategy: tf.distribute.Strategy,
    *,
    checkpoints: RunCheckpoints,
    evaluate: Any,
    log: TrainLog,
) -> None:
    step = int(trainee.global_step.numpy())
    if not config.do_train:
        if step == 0:
            raise UserError(f"--do_train=false evaluates a trained model, and {config.output_dir} has no checkpoint")
        return
    if step >= config.num_train_steps:
        logging.info("Training is done: step %d of %d.", step, config.num_train_steps)
        return
    if step:
        logging.info("Continuing from step %d of %d", step, config.num_train_steps)
    make_dataset = functools.partial(
        _dataset_from_step, data.train, batch_size=config.train_batch_size, seed=config.random_seed
    )
    train(
        trainee,
        Objective(pretraining_loss, pretraining_metric_names(data.heads)),
        make_dataset,
        strategy=strategy,
        checkpoints=checkpoints,
        evaluate=evaluate,
        log=log,
        settings=LoopSettings(
            num_train_steps=config.num_train_steps,
            save_checkpoints_steps=config.save_checkpoints_steps,
            iterations_per_loop=None if config.iterations_per_loop == "auto" else int(config.iterations_per_loop),
            random_seed=config.random_seed,
        ),
    )


def _dataset_from_step(records: Records, step: int, *, batch_size: int, seed: int) -> tf.data.Dataset:
    return training_dataset(records, batch_size=batch_size, seed=seed, start_step=step)


def _export(config: PretrainConfig, step: int) -> Path:
    """Exports the newest checkpoint, unless that was done before; returns where it is."""
    from albert_tf import export  # imports tensorflow-text, which training does without

    target = Path(config.export_dir or "") / str(_EXPORT_VERSION)
    checkpoint = open_checkpoint(config.output_dir)
    if not target.exists():
        return export.export_saved_model(checkpoint, output_dir=target.parent, version=_EXPORT_VERSION)
    if not export.is_export_of(target, checkpoint):
        raise UserError(
            f"{target} holds the export of another checkpoint than step {step} of this run; export it with "
            f"python -m albert_tf.export_saved_model --checkpoint={config.output_dir} --version=N"
        )
    logging.info("%s holds the export of this checkpoint already.", target)
    return target
