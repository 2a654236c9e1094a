"""Text to a directory of records: reads, hands units to workers, joins their results, and closes with the manifest."""

import collections
import concurrent.futures.process
import contextlib
import dataclasses
import fcntl
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.files import expand_globs, read_json, whole_file, write_json
from albert_tf.manifest import MANIFEST_FILE, TOKEN_COUNTS_FILE, UNFINISHED_DIRECTORY, Manifest
from albert_tf.run_config import RecordsConfig
from albert_tf.tokenizer import TOKENIZER_DIRECTORY, Tokenizer, load_tokenizer
from albert_tf.version import __version__
from data_prep.documents import Document, ReadCounts, read_documents
from data_prep.shard_writer import EVAL_SHARD, committed_results, shard_name, write_shard
from data_prep.work_units import UnitResult, UnitTask, pack_units, run_unit, start_worker

_SPILL_SETTINGS_FILE = "settings.json"
_UNKNOWN_WARNING = 0.02


class _WorkerKilled(UserError):
    """A worker died; the work that was finished before is kept."""


def create_records(config: RecordsConfig) -> Manifest:
    """Writes shards, tokenizer and token counts into `config.output_dir`, then the manifest; returns it.

    Where the directory already holds the result of the same settings and inputs, nothing is done; where a run with them
    was killed, its finished units are used. A directory that another process is writing raises UserError.
    """
    files = expand_globs(config.input_file, flag="--input_file")
    tokenizer = load_tokenizer(config.spm_model_file, lower_case=config.do_lower_case)
    settings = _settings(config, files)
    directory = Path(config.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        finished = _finished_manifest(directory, settings, tokenizer)
        manifest = finished or _make_records(config, files, tokenizer, settings)
        shutil.rmtree(directory / UNFINISHED_DIRECTORY, ignore_errors=True)
        for place in (directory, directory / TOKENIZER_DIRECTORY):
            for temporary in place.glob(".*.tmp-*"):  # of a run that was killed
                if temporary.is_file():
                    temporary.unlink()
    if finished:
        logging.info("%s holds these records already; nothing to do.", directory)
        return finished
    _log_summary(manifest, directory)
    return manifest


def _make_records(config: RecordsConfig, files: list[Path], tokenizer: Tokenizer, settings: dict[str, Any]) -> Manifest:
    directory = Path(config.output_dir)
    spill = directory / UNFINISHED_DIRECTORY
    _open_spill(spill, {**settings, "spm_model_file": tokenizer.fingerprint})
    try:
        counts, token_counts = _run_units(config, files, tokenizer, spill)
        _check_examples(config, counts)
    except _WorkerKilled:
        raise  # the finished units are good
    except UserError:
        shutil.rmtree(spill, ignore_errors=True)  # the text or a flag must change first
        raise
    shards = _write_shards(config, directory, spill)
    tokenizer.save(directory / TOKENIZER_DIRECTORY)
    with whole_file(directory / TOKEN_COUNTS_FILE) as temporary, open(temporary, "wb") as stream:
        np.save(stream, token_counts)
    manifest = Manifest(
        max_seq_length=config.max_seq_length,
        max_predictions_per_seq=config.predictions_per_seq,
        pair_task=config.pair_task,
        vocab_size=tokenizer.vocab_size,
        tokenizer_fingerprint=tokenizer.fingerprint,
        shards=shards,
        settings=settings,
        statistics=_statistics(counts),
        albert_tf_version=__version__,
    )
    manifest.save(directory)
    return manifest


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keeps a second process out of a directory; the lock ends with the process, however that ends."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"another process is writing records into {directory}; wait for it, or stop it") from None
    finally:
        os.close(descriptor)


def _open_spill(spill: Path, settings: dict[str, Any]) -> None:
    """Prepares the directory of unfinished work; that of a run with other settings raises UserError."""
    path = spill / _SPILL_SETTINGS_FILE
    if path.exists():
        recorded = read_json(path, what="settings of an unfinished run")
        different = [name for name in settings if recorded.get(name) != settings[name]]
        if different:
            raise UserError(
                f"{spill.parent} holds the unfinished work of a run with another {', '.join(different)}; repeat that "
                f"run's flags to finish it, or delete {spill}"
            )
        return
    shutil.rmtree(spill, ignore_errors=True)
    spill.mkdir(parents=True)
    write_json(path, settings)


def _settings(config: RecordsConfig, files: list[Path]) -> dict[str, Any]:
    """Returns what decides the bytes of the result, for the manifest; the number of processes does not."""
    settings = dataclasses.asdict(config)
    for name in ("input_file", "output_dir", "spm_model_file", "num_workers", "do_lower_case"):
        del settings[name]
    settings["max_predictions_per_seq"] = config.predictions_per_seq
    settings["input_files"] = [{"name": file.name, "bytes": file.stat().st_size} for file in files]
    return settings


def _finished_manifest(directory: Path, settings: dict[str, Any], tokenizer: Tokenizer) -> Manifest | None:
    """Returns the manifest of a finished run with equal settings, None without one; other settings raise UserError."""
    if not (directory / MANIFEST_FILE).exists():
        return None
    manifest = Manifest.load(directory)
    different = [name for name in settings if manifest.settings.get(name) != settings[name]]
    if manifest.tokenizer_fingerprint != tokenizer.fingerprint:
        different.append("spm_model_file")
    missing = [name for name in manifest.shards if not (directory / name).exists()]
    if different or missing:
        reason = f"made with another {', '.join(different)}" if different else f"of which {missing[0]} is missing"
        raise UserError(f"{directory} holds records {reason}; choose another --output_dir or delete that one")
    return manifest


def _documents(files: list[Path], config: RecordsConfig, counts: ReadCounts) -> Iterator[Document]:
    for index, file in enumerate(files):
        yield from read_documents(file, file_index=index, config=config, counts=counts)


def _run_units(
    config: RecordsConfig, files: list[Path], tokenizer: Tokenizer, spill: Path
) -> tuple[collections.Counter, np.ndarray]:
    """Runs all units in worker processes, with few in flight, and adds up their counts."""
    workers = config.num_workers or len(os.sched_getaffinity(0))
    read = ReadCounts()
    counts: collections.Counter = collections.Counter()
    token_counts = np.zeros(tokenizer.vocab_size, np.int64)
    executor = concurrent.futures.ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(config, tokenizer, spill),
    )
    total_bytes = sum(file.stat().st_size for file in files)
    with tqdm(total=total_bytes, unit="B", unit_scale=True, desc="Text to examples", mininterval=1.0) as progress:
        try:
            units = pack_units(_documents(files, config, read), pair_task=config.pair_task)
            finished = {n: UnitResult.from_arrays(arrays) for n, arrays in committed_results(spill).items()}
            if finished:
                logging.info("Continuing: %d units were finished before", len(finished))
            for result in _bounded_map(executor, units, finished=finished, in_flight=2 * workers):
                counts.update(result.counts)
                token_counts += result.token_counts
                progress.set_postfix(examples=counts["train/examples"] + counts["eval/examples"], refresh=False)
                progress.update(min(result.counts["input/characters"], total_bytes - progress.n))
            progress.update(total_bytes - progress.n)
        except concurrent.futures.process.BrokenProcessPool:
            raise _WorkerKilled(
                "a worker process was killed, as the system does when memory runs out; repeat the command with fewer "
                "--num_workers to go on"
            ) from None
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()  # a unit in flight could take minutes
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
    counts["input/bytes"], counts["input/lines"] = read.text_bytes, read.lines
    counts["input/lines_with_invalid_bytes"] = read.lines_with_invalid_bytes
    return counts, token_counts


def _bounded_map(
    executor: concurrent.futures.Executor,
    tasks: Iterator[UnitTask],
    *,
    finished: dict[int, UnitResult],
    in_flight: int,
) -> Iterator[UnitResult]:
    """Yields results as they come, those in `finished` without work, reading at most `in_flight` tasks ahead."""
    pending: set[concurrent.futures.Future[UnitResult]] = set()
    for task in tasks:
        if task.number in finished:
            yield finished[task.number]
            continue
        with _interrupt_blocked():
            pending.add(executor.submit(run_unit, task))
        if len(pending) >= in_flight:
            done, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
            yield from (future.result() for future in done)
    yield from (future.result() for future in concurrent.futures.as_completed(pending))


@contextlib.contextmanager
def _interrupt_blocked() -> Iterator[None]:
    """Starts processes that never see the interrupt key, which is this process's to act on."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _check_examples(config: RecordsConfig, counts: collections.Counter) -> None:
    """Raises UserError where a split that was asked for has no example."""
    documents = counts["train/documents"] + counts["eval/documents"]
    if documents == 0:
        raise UserError("--input_file has no text: every line is empty, or makes no token")
    if counts["train/examples"] == 0:
        single = counts["train/documents_of_one_sentence"] + counts["eval/documents_of_one_sentence"]
        raise UserError(
            f"the text made no training example: of {documents} document(s), {single} have one sentence only (a pair "
            f"needs two), and {counts['eval/documents']} are held out. Check --document_mode={config.document_mode} "
            f"and --sentence_split={config.sentence_split} against the text"
            + ("; --pair_task=nsp needs two documents" if config.pair_task == "nsp" else "")
        )
    if config.eval_fraction and counts["eval/examples"] == 0:
        raise UserError(
            f"--eval_fraction={config.eval_fraction} of {documents} document(s) held out none with an example; raise "
            "it, or cut the text into more documents (--document_mode)"
        )


def _write_shards(config: RecordsConfig, directory: Path, spill: Path) -> dict[str, int]:
    """Writes every shard; returns the number of examples of each, by file name."""
    names = {i: shard_name("train", i, config.num_shards) for i in range(config.num_shards)}
    if config.eval_fraction:
        names[EVAL_SHARD] = shard_name("eval", 0, 1)
    progress = tqdm(names.items(), unit="shard", desc="Shuffling shards", mininterval=1.0)
    return {name: write_shard(spill, directory / name, shard=shard) for shard, name in progress}


def _statistics(counts: collections.Counter) -> dict[str, Any]:
    """Returns counts by split, with the shares that tell whether the data are sane."""
    statistics: dict[str, Any] = {"input": {}, "train": {}, "eval": {}}
    for name, value in sorted(counts.items()):
        group, key = name.split("/")
        statistics[group][key] = value
    for group in ("train", "eval"):
        split = statistics[group]
        if split.get("examples"):
            split["label_1_share"] = round(split["label_1"] / split["examples"], 6)
            split["masked_share"] = round(split["masked_tokens"] / split["example_tokens"], 6)
            split["unknown_share"] = round(split["unknown_tokens"] / split["tokens"], 6)
            split["mean_example_tokens"] = round(split["example_tokens"] / split["examples"], 3)
    return statistics


def _log_summary(manifest: Manifest, directory: Path) -> None:
    for split in ("train", "eval"):
        values = manifest.statistics[split]
        if values.get("examples"):
            logging.info(
                "%s: %s examples from %s documents of %s tokens; %.1f tokens an example, %.1f %% masked, "
                "%.1f %% with label 1, %.2f %% unknown pieces",
                split, f"{values['examples']:,}", f"{values['documents']:,}", f"{values['tokens']:,}",
                values["mean_example_tokens"], 100 * values["masked_share"], 100 * values["label_1_share"],
                100 * values["unknown_share"],
            )  # fmt: skip
    train = manifest.statistics["train"]
    if train["unknown_share"] > _UNKNOWN_WARNING:
        logging.warning("%.1f %% of the pieces are unknown: the vocabulary does not fit the text",
                        100 * train["unknown_share"])  # fmt: skip
    if train.get("documents_of_one_sentence"):
        logging.info("%s documents of one sentence were skipped", f"{train['documents_of_one_sentence']:,}")
    logging.info("Records are in %s", directory)
