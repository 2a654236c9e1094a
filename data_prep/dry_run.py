"""A look ahead: records of the first text, kept nowhere, and what all of the text would give."""

import collections
import os
import tempfile
import time
from pathlib import Path

from albert_tf.settings.data_preparation import RecordsConfig
from albert_tf_data_prep.documents import read_all_documents
from albert_tf_data_prep.pretraining_records import check_vocabulary, find_tokenizer, input_counts
from albert_tf_data_prep.record_statistics import describe, summarize_all
from albert_tf_data_prep.text_inputs import ReadCounts, open_sources
from albert_tf_data_prep.work_units import UnitWorker, pack_units

_SECONDS = 3.0


def preview_records(config: RecordsConfig) -> list[str]:
    """Makes records of the first text for a few seconds; returns lines with their statistics and an estimate."""
    sources = open_sources(config)
    tokenizer = find_tokenizer(config)
    read = ReadCounts()
    counts: collections.Counter = collections.Counter()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        worker = UnitWorker(config, tokenizer, Path(directory))
        for unit in pack_units(read_all_documents(sources, config=config, counts=read), pair_task=config.pair_task):
            counts.update(worker.run(unit).counts)
            check_vocabulary(counts, config)
            if time.perf_counter() - began > _SECONDS:
                finished = False
                break
        else:
            finished = True
        record_bytes = sum(path.stat().st_size for path in Path(directory).glob("*.records"))
    seconds = time.perf_counter() - began
    counts.update(input_counts(sources, read))
    statistics = summarize_all(counts, pair_task=config.pair_task)
    total = sum(source.size_bytes for source in sources)
    share = 1.0 if finished else read.input_bytes / total
    examples = counts["train/examples"] + counts["eval/examples"]
    workers = config.num_workers or len(os.sched_getaffinity(0))
    lines = [f"Sample: {share:.1%} of {total / 1e6:,.1f} MB of input; one process makes {examples / seconds:,.0f} "
             f"examples a second from {read.text_bytes / seconds / 1e6:.2f} MB of text"]  # fmt: skip
    for split in ("train", "eval"):
        if statistics[split].get("examples"):
            lines.append(f"{split}: {describe(statistics[split])}")
    lines += [f"Warning: {warning}" for warning in statistics["warnings"]]
    lines.append(
        f"All of it, if it is alike: {examples / share:,.0f} examples, {record_bytes / share / 1e9:.2f} GB of records "
        f"(and as much again while they are made), about {_duration(seconds / share / workers)} with {workers} "
        "process(es)"
    )
    return lines


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
