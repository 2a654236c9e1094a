"""Pre-training put together: records, model, optimizer, loop, evaluation, closing summary, and export."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.architecture.config import AlbertConfig
from albert_tf.architecture.costs import step_flops
from albert_tf.checkpoints.opening import assign_weights, open_checkpoint
from albert_tf.errors import UserError
from albert_tf.files import locked_directory, require_writable
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.precision import dtype_policy
from albert_tf.model.variables import named_variables
from albert_tf.pretraining.batches import evaluation_dataset, training_dataset
from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
from albert_tf.pretraining.plan import RunPlan, check_fit, check_same_command, make_plan, num_evaluated
from albert_tf.pretraining.record_data import RunData, open_data
from albert_tf.pretraining.summary import export_lines, summary_lines
from albert_tf.settings.pretraining import PretrainConfig
from albert_tf.training import distribution
from albert_tf.training.divergence import DivergenceGuard
from albert_tf.training.failures import failures_as_sentences
from albert_tf.training.kept_checkpoints import RunCheckpoints, newest_in_words
from albert_tf.training.log import TrainLog
from albert_tf.training.loop import Interrupted, LoopSettings, TrainLoop
from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule
from albert_tf.training.run_directory import note_environment, write_run_files
from albert_tf.training.step import Objective, Trainee, make_evaluator
from albert_tf.training.stop_requests import stop_requests
from albert_tf.training.utilisation import measure_product_rate
from albert_tf.training.workers import Agreement, is_chief

_EXPORT_VERSION = 1


def pretrain(config: PretrainConfig) -> int:
    """Runs or continues a pre-training run; returns the exit status.

    Everything that can be wrong with the input is checked before anything is written.
    """
    albert_config = AlbertConfig.load(config.albert_config_file)
    if config.trains and is_chief():
        require_writable(config.output_dir, flag="--output_dir")
    if config.export_dir and is_chief():
        require_writable(config.export_dir, flag="--export_dir")
    data = open_data(config, albert_config)
    check_fit(config, albert_config, data=data)
    strategy = distribution.make_strategy(config.tpu, zone=config.tpu_zone, project=config.gcp_project)
    plan = make_plan(config, albert_config, data=data, strategy=strategy)
    for line in plan.lines:
        logging.info("%s", line)
    if config.dry_run:
        logging.info("Nothing was done: --dry_run")
        return 0
    files = [file for records in (data.train, data.evaluation) if records for file in records.files]
    with failures_as_sentences(files):
        check_same_command(config, albert_config, plan=plan, strategy=strategy)
        with _output_directory(config):
            try:
                with _stop_requests(config) as requests:
                    loop = _prepare(config, albert_config, data, plan, strategy)
                    _train_or_say_done(config, loop, requests)
            except Interrupted as stopped:
                logging.info("Stopped by %s at step %d of %d; the same command goes on from there.",
                             stopped.reason, stopped.step, config.num_train_steps)  # fmt: skip
                return 0
            _conclude(config, loop, num_held_out=num_evaluated(config, data))
    return 0


def _stop_requests(config: PretrainConfig) -> contextlib.AbstractContextManager[list[str]]:
    """Watches for requests to stop where there is something to save; an evaluation alone just ends."""
    if not config.trains:
        return contextlib.nullcontext([])
    return stop_requests(poll_metadata_server=config.tpu is not None)


@contextlib.contextmanager
def _output_directory(config: PretrainConfig) -> Iterator[None]:
    """Keeps a second process from training into --output_dir; a start that failed leaves no empty directory."""
    if not config.trains or not is_chief():
        yield
        return
    with locked_directory(Path(config.output_dir), what="training into"):
        yield


def _prepare(
    config: PretrainConfig, albert_config: AlbertConfig, data: RunData, plan: RunPlan, strategy: tf.distribute.Strategy
) -> TrainLoop:
    """Builds the loop at the step that the run goes on from; writes the run's files once all else has worked."""
    directory, writes = Path(config.output_dir), config.trains and is_chief()
    with strategy.scope():
        trainee = _make_trainee(config, albert_config, data, plan.precision)
        checkpoints = RunCheckpoints(
            directory,
            variables=trainee.variables,
            optimizer=trainee.optimizer,
            state=trainee.state,
            keep=config.keep_checkpoint_max,
            writes=writes,
            file_device=distribution.file_device(strategy),
        )
        if not checkpoints.restore_latest():
            _initialize(config, trainee, data)
    step = int(trainee.global_step.numpy())
    Agreement(strategy).check_equal(step, what=newest_in_words(step))
    _check_export_target(config, finished=step >= plan.num_train_steps)
    if writes:
        if not step:
            write_run_files(directory, config=albert_config, run_config=plan.record, tokenizer=data.tokenizer)
        computation = {"gradient_accumulation_steps": config.gradient_accumulation_steps, "remat": config.remat}
        note_environment(directory, step=step, strategy=strategy, computation=computation)
    guard = DivergenceGuard(
        directory,
        max_loss_jump=config.max_loss_jump,
        max_rollbacks=config.max_rollbacks,
        step=step,
        writes=writes,
    )
    guard.set_state(trainee.state["recent_losses"].numpy())
    return TrainLoop(
        trainee=trainee,
        objective=Objective(pretraining_loss, pretraining_metric_names(data.heads)),
        make_batches=_make_batches(config, data, strategy),
        strategy=strategy,
        checkpoints=checkpoints,
        guard=guard,
        evaluate=_make_evaluate(config, trainee.model, data, strategy),
        held_out=plan.held_out,
        log=TrainLog(directory, start_step=step, num_train_steps=plan.num_train_steps, writes=writes),
        settings=_loop_settings(config, num_train_steps=plan.num_train_steps),
        ideal_step_seconds=_ideal_step_seconds(config, albert_config, data, plan, strategy),
    )


def _make_trainee(config: PretrainConfig, albert_config: AlbertConfig, data: RunData, precision: str) -> Trainee:
    """Creates model, optimizer and state; initial weights follow from the seed."""
    keras.utils.set_random_seed(config.random_seed % 2**32)
    policy = dtype_policy(precision)
    model = AlbertWithHeads(albert_config, heads=data.heads, remat=config.remat, dtype=policy)
    variables = named_variables(model)
    schedule = LearningRateSchedule(
        config.peak_learning_rate,
        num_train_steps=config.num_train_steps,
        num_warmup_steps=config.warmup_steps,
        power=config.poly_power,
        start_warmup_step=config.start_warmup_step,
    )
    return Trainee.create(model, variables, AlbertOptimizer(config.optimizer, variables, schedule=schedule))


def _initialize(config: PretrainConfig, trainee: Trainee, data: RunData) -> None:
    """Sets what a fresh run does not start at random."""
    if not config.trains:
        raise UserError(
            f"without --do_train a trained model is evaluated, and {config.output_dir} has no checkpoint of one; "
            "--do_eval alone does not train"
        )
    if config.init_checkpoint is not None:
        checkpoint = open_checkpoint(config.init_checkpoint)
        checkpoint.require_same_computation(trainee.model.config)
        assign_weights(trainee.variables, checkpoint)
    elif config.init_output_bias == "unigram":
        trainee.variables["cls/predictions/output_bias"].assign(data.token_log_probs())


def _make_batches(config: PretrainConfig, data: RunData, strategy: tf.distribute.Strategy) -> Any:
    """Returns the function that gives the distributed batches after the n-th, or None without training records."""
    size, records = config.train_batch_size, data.train
    if records is None:
        return None

    def make_batches(start_step: int) -> Any:
        def rows_of(rows: slice) -> tf.data.Dataset:
            return training_dataset(records, batch_size=size, seed=config.random_seed, start_step=start_step, rows=rows)

        return distribution.distribute(rows_of, strategy, batch_size=size)

    return make_batches


def _make_evaluate(
    config: PretrainConfig, model: AlbertWithHeads, data: RunData, strategy: tf.distribute.Strategy
) -> Any:
    """Returns the function that evaluates on the held-out records, or None without them."""
    if data.evaluation is None:
        return None
    log_probs = data.token_log_probs()
    loss_fn = functools.partial(pretraining_loss, unigram_log_probs=log_probs)
    objective = Objective(loss_fn, pretraining_metric_names(data.heads, unigram=log_probs is not None))
    size = config.eval_batch_size
    records = data.evaluation

    def rows_of(rows: slice) -> tf.data.Dataset:
        return evaluation_dataset(records, batch_size=size, max_steps=config.max_eval_steps, rows=rows)

    make_batches = functools.partial(distribution.distribute, rows_of, strategy, batch_size=size)
    return make_evaluator(model, objective, make_dataset=make_batches, strategy=strategy)


def _loop_settings(config: PretrainConfig, *, num_train_steps: int) -> LoopSettings:
    return LoopSettings(
        num_train_steps=num_train_steps,
        save_checkpoints_steps=config.save_checkpoints_steps,
        save_checkpoints_secs=config.save_checkpoints_secs,
        iterations_per_loop=None if config.iterations_per_loop == "auto" else int(config.iterations_per_loop),
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        random_seed=config.random_seed,
        profile_steps=config.profile_steps,
    )


def _ideal_step_seconds(
    config: PretrainConfig, albert_config: AlbertConfig, data: RunData, plan: RunPlan, strategy: tf.distribute.Strategy
) -> float:
    """Returns how long a step's matrix products would take on this hardware; 0 where nothing is trained."""
    if not data.train:
        return 0.0
    flops = step_flops(
        albert_config,
        batch_size=config.train_batch_size,
        max_seq_length=data.train.max_seq_length,
        max_predictions_per_seq=data.train.max_predictions_per_seq,
    )
    rate = measure_product_rate(strategy, precision=plan.precision)
    logging.info("A step is %.3g GFLOP of matrix products, which the hardware makes at %.3g GFLOP/s (%s)",
                 flops / 1e9, rate / 1e9, plan.precision)  # fmt: skip
    return flops / rate


def _train_or_say_done(config: PretrainConfig, loop: TrainLoop, requests: Sequence[str]) -> None:
    """Trains to the last step and evaluates it; raises Interrupted where `requests` gets a reason to stop."""
    if not config.trains:
        return
    is_done = loop.step >= config.num_train_steps
    if loop.step:
        done_or_continuing = "Training is done: step %d of %d." if is_done else "Continuing from step %d of %d"
        logging.info(done_or_continuing, loop.step, config.num_train_steps)
    is_due = loop.step > 0 and (is_done or loop.step % config.save_checkpoints_steps == 0)
    # A run may be killed between a checkpoint and its evaluation, or have other held-out examples now.
    if is_due and loop.evaluation_is_missing() and not loop.evaluate_checkpoint(requests):
        raise Interrupted(requests, loop.step)
    if not is_done:
        loop.train(requests)
    if loop.must_stop(requests):  # before what follows: it can be made at the next start
        raise Interrupted(requests, loop.step)


def _conclude(config: PretrainConfig, loop: TrainLoop, *, num_held_out: int) -> None:
    """Prints the summary, and exports."""
    metrics = loop.evaluation()
    if not config.trains and loop.evaluate:
        metrics = loop.evaluate(lambda: False)
    if not is_chief():
        return
    lines = summary_lines(
        metrics,
        step=loop.step,
        num_train_steps=loop.settings.num_train_steps,
        output_dir=config.output_dir,
        num_held_out=num_held_out,
        best=loop.checkpoints.best(held_out=loop.held_out),
        tokens_per_second=loop.log.median("train", "tokens_per_second"),
    )
    print("\n".join(lines), flush=True)
    if config.export_dir:
        print("\n".join(export_lines(_export(config, loop.step))))


def _export_target(config: PretrainConfig) -> Path:
    return Path(config.export_dir or "") / str(_EXPORT_VERSION)


def _check_export_target(config: PretrainConfig, *, finished: bool) -> None:
    """Raises UserError where the end of the run could not be exported, so that it is known at the beginning."""
    target = _export_target(config)
    if config.export_dir and not finished and target.exists():
        raise UserError(
            f"{target} exists, and this run is not at its end: choose another --export_dir, or leave the flag out and "
            "export with python -m albert_tf.export_saved_model --version=N"
        )


def _export(config: PretrainConfig, step: int) -> Path:
    """Exports the newest checkpoint, unless that was done before; returns where it is."""
    from albert_tf.export import saved_model_writer  # imports tensorflow-text, which training does without

    target, checkpoint = _export_target(config), open_checkpoint(config.output_dir)
    if not target.exists():
        return saved_model_writer.export_saved_model(checkpoint, output_dir=target.parent, version=_EXPORT_VERSION)
    if not saved_model_writer.is_export_of(target, checkpoint):
        raise UserError(
            f"{target} holds the export of another checkpoint than step {step} of this run; export it with "
            f"python -m albert_tf.export_saved_model --checkpoint={config.output_dir} --version=N"
        )
    logging.info("%s holds the export of this checkpoint already.", target)
    return target
