"""Text to a directory of records: reads, hands units to workers, joins their results, and closes with the manifest."""

import collections
import dataclasses
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.files import differing_keys, locked_directory, read_json, require_writable, whole_file, write_json
from albert_tf.records.manifest import MANIFEST_FILE, TOKEN_COUNTS_FILE, UNFINISHED_DIRECTORY, Manifest, Shard
from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf.text.tokenizer_files import (
    TOKENIZER_DIRECTORY,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    load_tokenizer,
)
from albert_tf.version import __version__
from albert_tf_data_prep.documents import read_all_documents
from albert_tf_data_prep.record_statistics import describe, summarize_all
from albert_tf_data_prep.shard_writer import EVAL_SHARD, ShardTask, committed_results, run_shard, shard_name
from albert_tf_data_prep.text_inputs import ReadCounts, TextSource, open_sources
from albert_tf_data_prep.work_units import UnitResult, UnitTask, pack_units, run_unit, start_worker
from albert_tf_data_prep.worker_pool import WorkerKilledError, WorkerPool, worker_pool

_SPILL_SETTINGS_FILE = "settings.json"
# Settings that do not decide a byte of the result, and those that the tokenizer's fingerprint stands for.
_NOT_DECIDING = ("spm_model_file", "vocab_file", "do_lower_case", "dry_run", "num_workers", "max_unknown_share")
_TOKENS_THAT_JUDGE = 1000  # so many pieces are enough to tell that the vocabulary is wrong


def create_records(config: RecordsConfig) -> Manifest:
    """Writes shards, tokenizer and token counts into `config.output_dir`, then the manifest; returns it.

    Where the directory already holds the result of the same settings and inputs, nothing is done; where a run with them
    was killed, its finished units are used. A directory that another process is writing raises UserError.
    """
    sources = open_sources(config)
    tokenizer = find_tokenizer(config)
    settings = _settings(config, sources)
    directory = Path(config.output_dir)
    require_writable(directory, flag="--output_dir")
    with locked_directory(directory, what="writing records into") as lock:
        finished = _finished_manifest(directory, settings, tokenizer)
        manifest = finished or _make_records(config, sources, tokenizer, settings, lock)
        shutil.rmtree(directory / UNFINISHED_DIRECTORY, ignore_errors=True)
    if finished:
        logging.info("%s holds these records already; nothing to do.", directory)
        return finished
    _log_summary(manifest, directory)
    return manifest


def find_tokenizer(config: RecordsConfig) -> Tokenizer:
    """Loads the tokenizer that the flags name; one of the kind of the other flag raises UserError."""
    kind = (WordPieceTokenizer if config.vocab_file else SentencePieceTokenizer).kind
    return load_tokenizer(config.tokenizer_file, kind=kind, lower_case=config.do_lower_case)


def _make_records(
    config: RecordsConfig, sources: Sequence[TextSource], tokenizer: Tokenizer, settings: dict[str, Any], lock: int
) -> Manifest:
    directory = Path(config.output_dir)
    spill = directory / UNFINISHED_DIRECTORY
    _open_spill(spill, {**settings, "tokenizer": tokenizer.fingerprint, "albert_tf_version": __version__})
    workers = config.num_workers or len(os.sched_getaffinity(0))
    arguments = (config, tokenizer, spill)
    try:
        with worker_pool(workers, initializer=start_worker, arguments=arguments, kept_from_workers=lock) as pool:
            counts, token_counts = _run_units(config, sources, tokenizer, spill, pool)
            _check_examples(config, counts)
            shards = _write_shards(config, directory, spill, pool)
    except WorkerKilledError:
        raise  # the finished units are good
    except UserError:
        shutil.rmtree(spill, ignore_errors=True)  # the text or a flag must change first
        raise
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
        statistics=summarize_all(counts, pair_task=config.pair_task),
        albert_tf_version=__version__,
    )
    manifest.save(directory)
    return manifest


def _open_spill(spill: Path, settings: dict[str, Any]) -> None:
    """Prepares the directory of unfinished work; that of a run with other settings raises UserError."""
    path = spill / _SPILL_SETTINGS_FILE
    if path.exists():
        recorded = read_json(path, what="settings of an unfinished run")
        different = differing_keys(recorded, settings)
        if different:
            raise UserError(
                f"{spill.parent} holds the unfinished work of a run with a different {', '.join(different)}; repeat "
                f"that run's flags to finish it, or delete {spill}"
            )
        return
    shutil.rmtree(spill, ignore_errors=True)
    spill.mkdir(parents=True)
    write_json(path, settings)


def _settings(config: RecordsConfig, sources: Sequence[TextSource]) -> dict[str, Any]:
    """Returns what decides the bytes of the result, for the manifest; the number of processes does not."""
    settings = dataclasses.asdict(config)
    for name in (*config.PLACES, *_NOT_DECIDING):
        del settings[name]
    settings["max_predictions_per_seq"] = config.predictions_per_seq
    settings["input"] = [source.identity() for source in sources]
    return settings


def _finished_manifest(directory: Path, settings: dict[str, Any], tokenizer: Tokenizer) -> Manifest | None:
    """Returns the manifest of a finished run with equal settings, None without one; other settings raise UserError."""
    if not (directory / MANIFEST_FILE).exists():
        return None
    manifest = Manifest.load(directory)
    different = differing_keys(manifest.settings, settings)
    if manifest.tokenizer_fingerprint != tokenizer.fingerprint:
        different.append("tokenizer")
    problems = [f"{name} {problem}" for name, shard in manifest.shards.items()
                if (problem := shard.problem(directory / name))]  # fmt: skip
    if different or problems:
        reason = f"made with a different {', '.join(different)}" if different else f"of which {problems[0]}"
        raise UserError(f"{directory} holds records {reason}; choose another --output_dir or delete that one")
    return manifest


def _run_units(
    config: RecordsConfig, sources: Sequence[TextSource], tokenizer: Tokenizer, spill: Path, pool: WorkerPool
) -> tuple[collections.Counter, np.ndarray]:
    """Runs all units in worker processes and adds up their counts; those that were committed before are not run."""
    read = ReadCounts()
    counts: collections.Counter = collections.Counter()
    token_counts = np.zeros(tokenizer.vocab_size, np.int64)
    total_bytes = sum(source.size_bytes for source in sources)

    def add(result: UnitResult) -> None:
        counts.update(result.counts)
        token_counts[:] += result.token_counts
        check_vocabulary(counts, config)
        progress.set_postfix(examples=counts["train/examples"] + counts["eval/examples"], refresh=False)
        progress.update(read.input_bytes - progress.n)

    def unfinished(units: Iterator[UnitTask]) -> Iterator[UnitTask]:
        for unit in units:
            arrays = committed_results(spill, unit.number)
            if arrays is None:
                yield unit
            else:
                add(UnitResult.from_arrays(arrays))

    with tqdm(total=total_bytes, unit="B", unit_scale=True, desc="Text to examples", mininterval=1.0) as progress:
        units = pack_units(read_all_documents(sources, config=config, counts=read), pair_task=config.pair_task)
        for result in pool.map_unordered(run_unit, unfinished(units)):
            add(result)
    counts.update(input_counts(sources, read))
    return counts, token_counts


def input_counts(sources: Sequence[TextSource], read: ReadCounts) -> dict[str, int]:
    """Returns what was met while reading, as counts of the group "input"."""
    return {"input/files": len(sources), **{f"input/{name}": value for name, value in vars(read).items()}}


def check_vocabulary(counts: collections.Counter, config: RecordsConfig) -> None:
    """Raises UserError where too many pieces are unknown, before hours are spent."""
    tokens = counts["train/tokens"] + counts["eval/tokens"]
    unknown = counts["train/unknown_tokens"] + counts["eval/unknown_tokens"]
    if unknown > config.max_unknown_share * tokens and tokens >= _TOKENS_THAT_JUDGE:
        raise UserError(
            f"{unknown:,} of the first {tokens:,} pieces ({unknown / tokens:.1%}) are unknown, more than "
            f"--max_unknown_share={config.max_unknown_share}: the vocabulary is not of this text's language or kind. "
            "Use the one that was made for it, or raise the limit"
        )


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


def _write_shards(config: RecordsConfig, directory: Path, spill: Path, pool: WorkerPool) -> dict[str, Shard]:
    """Writes every shard; returns them by file name."""
    names = {i: shard_name("train", i, count=config.num_shards) for i in range(config.num_shards)}
    if config.eval_fraction:
        names[EVAL_SHARD] = shard_name("eval", 0, count=1)
    tasks = [ShardTask(spill, directory / name, number) for number, name in names.items()]
    written = pool.map_unordered(run_shard, tasks)
    shards = dict(tqdm(written, total=len(tasks), unit="shard", desc="Shuffling shards", mininterval=1.0))
    return {name: shards[number] for number, name in names.items()}


def _log_summary(manifest: Manifest, directory: Path) -> None:
    for split in ("train", "eval"):
        if manifest.statistics[split].get("examples"):
            logging.info("%s: %s", split, describe(manifest.statistics[split]))
    for warning in manifest.statistics["warnings"]:
        logging.warning("Warning: %s", warning)
    logging.info("Records are in %s", directory)
