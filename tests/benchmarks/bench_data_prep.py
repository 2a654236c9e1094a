"""Prints how fast text becomes pre-training records, how much memory it takes, and where the time goes.

    python tests/benchmarks/bench_data_prep.py --data_dir=DIRECTORY_OF_BOOKS --spm_model_file=spiece.model

Whole processes are timed, start-up included. The yardstick is the original's create_pretraining_data.py: 600 examples a
second on 3.1 MB of books, on a machine where SentencePiece encodes 3.4 million tokens a second on one core. Ratios are
scaled by the rate of SentencePiece in the same run.
"""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ORIGINAL_EXAMPLES_PER_SECOND = 600
SENTENCEPIECE_TOKENS_PER_SECOND = 3.4e6
FLAGS = {"document_mode": "heading", "sentence_split": "prose", "max_seq_length": "128",
         "max_predictions_per_seq": "20"}  # fmt: skip


def main() -> None:
    """Runs the command for each number of workers, then one worker's steps under timers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--spm_model_file", type=Path, default=ROOT / "tests/data/golden/tokenization/spiece.model")
    parser.add_argument("--dupe_factor", type=int, default=10)
    parser.add_argument("--num_workers", type=int, nargs="*", default=[1, 2])
    arguments = parser.parse_args()
    flags = {
        **FLAGS,
        "input_file": f"{arguments.data_dir}/*.txt",
        "spm_model_file": str(arguments.spm_model_file),
        "dupe_factor": str(arguments.dupe_factor),
    }
    scale = sentencepiece_rate(flags) / SENTENCEPIECE_TOKENS_PER_SECOND
    print(f"SentencePiece: {scale * SENTENCEPIECE_TOKENS_PER_SECOND / 1e6:.2f} million tokens/s, scale {scale:.2f}")
    for workers in arguments.num_workers:
        seconds, peak, statistics = run_command({**flags, "num_workers": str(workers)})
        train, megabytes = statistics["train"], statistics["input"]["text_bytes"] / 1e6
        rate = train["examples"] / seconds
        print(
            f"{workers} worker(s): {seconds:.2f} s, {rate:,.0f} examples/s, "
            f"{train['tokens'] / seconds:,.0f} tokens of text/s, {megabytes / seconds:.2f} "
            f"MB/s of text; {rate / ORIGINAL_EXAMPLES_PER_SECOND / scale:.1f} times the original; peak of a process "
            f"{peak / 2**20:.0f} MiB"
        )
    shares = time_shares(flags)
    print("one worker's time: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))


def sentencepiece_rate(flags: dict[str, str]) -> float:
    """Returns tokens a second of SentencePiece on one core: the best of five runs over the normalised sentences."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=flags["spm_model_file"])
    config = make_config(flags)
    text = [sentence.lower() for document in documents_of(config) for sentence in document.sentences][:30_000]
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        tokens = sum(map(len, processor.encode(text, out_type=int, num_threads=1)))
        best = max(best, tokens / (time.perf_counter() - began))
    return best


def run_command(flags: dict[str, str]) -> tuple[float, int, dict[str, Any]]:
    """Returns seconds, the largest resident size of a process in bytes, and the manifest's statistics."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "data_prep/create_pretraining_data.py", f"--output_dir={directory}/records"]
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in flags.items())], cwd=ROOT, stderr=subprocess.DEVNULL
        )
        peak = [0]
        watcher = threading.Thread(target=_watch_memory, args=(process, peak))
        watcher.start()
        status = process.wait()
        seconds = time.perf_counter() - began
        watcher.join()
        if status:
            raise SystemExit(f"the command failed with status {status}")
        manifest = json.loads((Path(directory) / "records" / "manifest.json").read_text())
    return seconds, peak[0], manifest["statistics"]


def _watch_memory(process: subprocess.Popen, peak: list[int]) -> None:
    """Keeps the largest resident size of the process and its children; the kernel records each one's peak."""
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            for pid in [str(process.pid), *children.read_text().split()]:
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                peak[0] = max(peak[0], int(status["VmHWM"].split()[0]) * 1024)
        except (OSError, KeyError):
            continue  # it ended meanwhile
        time.sleep(0.05)


def time_shares(flags: dict[str, str]) -> dict[str, float]:
    """Returns the share of one worker's time in each kind of step, the writing of shards included."""
    from albert_tf.text.tokenizer_files import load_tokenizer
    from albert_tf_data_prep import work_units
    from albert_tf_data_prep.shard_writer import SpillWriter, write_shard

    config = make_config(flags)
    spent: collections.Counter = collections.Counter()

    def timed(name: str, function: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                spent[name] += time.perf_counter() - began

        return call

    work_units.UnitWorker._tokenize = timed("tokenising", work_units.UnitWorker._tokenize)
    for name, kind in [("make_pairs", "pairing"), ("lay_out", "pairing"), ("mask_examples", "masking"),
                       ("encode_examples", "encoding"), ("count_examples", "counting")]:  # fmt: skip
        setattr(work_units, name, timed(kind, getattr(work_units, name)))
    SpillWriter.write = timed("writing", SpillWriter.write)
    SpillWriter.commit = timed("writing", SpillWriter.commit)
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        units = list(work_units.pack_units(documents_of(config), pair_task=config.pair_task))
        spent["reading"] = time.perf_counter() - began
        worker = work_units.UnitWorker(config, load_tokenizer(config.spm_model_file), Path(directory))
        began = time.perf_counter()
        for unit in units:
            worker.run(unit)
        whole = spent["reading"] + time.perf_counter() - began
        began = time.perf_counter()
        for shard in range(config.num_shards):
            write_shard(Path(directory), Path(directory) / "shard", shard=shard)
        spent["writing"] += time.perf_counter() - began
    whole += time.perf_counter() - began
    return {**{name: seconds / whole for name, seconds in spent.items()}, "the rest": 1 - sum(spent.values()) / whole}


def make_config(flags: dict[str, str]) -> Any:
    """Returns the command's configuration."""
    from albert_tf.settings.command_line import parse_flags
    from albert_tf.settings.data_preparation import RecordsConfig

    return parse_flags(RecordsConfig, ["bench", *(f"--{n}={v}" for n, v in flags.items()), "--output_dir=unused"])


def documents_of(config: Any) -> Any:
    """Yields the documents of all input files."""
    from albert_tf_data_prep.documents import read_all_documents
    from albert_tf_data_prep.text_inputs import ReadCounts, open_sources

    return read_all_documents(open_sources(config), config=config, counts=ReadCounts())


if __name__ == "__main__":
    main()
