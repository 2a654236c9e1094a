"""Batch inference against its peers, whole engines from strings to vectors, in one interleaved run.

    PYTHONPATH=. python tests/benchmarks/bench_inference.py --data_dir=GLUE --spm_model_file=spiece.model \
        [--peers_python=PYTHON] [--rounds=3] [--inputs=1549] [--slow_inputs=160] [--parts=throughput,latency]

Workload: SST-2 dev, the first 400 pairs of QNLI dev and RTE dev, shuffled with seed 0, segments cut so that no input
passes 266 tokens: 1,549 inputs. Model: ALBERT-base with random weights, pooled output. Each engine is a process of its
own; in every round each answers the first `--inputs` inputs once (those that are much slower `--slow_inputs`, a random
sample because of the shuffling), so that a machine whose speed drifts is the same for all. Ratios are medians over
rounds. Peers need transformers, torch and openvino in PYTHON; those that do not start are left out.
"""

import argparse
import csv
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[2]

WORKER = Path(__file__).with_name("inference_engines.py")
OURS, OURS_FLOAT32 = "albert_tf bfloat16", "albert_tf float32"
PEERS = (
    "OpenVINO bfloat16, sorted",
    "transformers bfloat16, sorted",
    "transformers float32, file order",
)
SLOW = ("transformers float32, file order",)
LENGTHS = (16, 64, 128, 512)
MAX_TOKENS = 266


def main() -> None:
    """Makes the workload and the model, runs the engines, prints tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--spm_model_file", type=Path, required=True)
    parser.add_argument("--peers_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inputs", type=int, default=1549)
    parser.add_argument("--slow_inputs", type=int, default=160)
    parser.add_argument("--engines", default=";".join((OURS, *PEERS)), help="names, separated by ;")
    parser.add_argument("--latency_runs", type=int, default=30)
    parser.add_argument("--parts", default="throughput,cosine,latency,profile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pairs = make_workload(options.data_dir, options.spm_model_file)
        (directory / "workload.json").write_text(json.dumps(pairs))
        make_model(directory, options.spm_model_file)
        names = options.engines.split(";")
        engines = {name: Engine(name, directory, options.peers_python) for name in names}
        engines = {name: engine for name, engine in engines.items() if engine.started}
        print(f"{describe_machine()}; {len(pairs)} inputs, of which each engine answers {options.inputs} a round "
              f"({', '.join(SLOW)}: {options.slow_inputs}); {options.rounds} rounds", flush=True)  # fmt: skip
        if "throughput" in options.parts:
            throughput(engines, options)
        if "cosine" in options.parts:
            cosines(engines, directory, options)
        if "latency" in options.parts:
            latencies(engines, options.latency_runs)
        for engine in engines.values():
            engine.close()
        if "profile" in options.parts:
            profile(directory)


def make_workload(data_dir: Path, spm_model_file: Path) -> list[tuple[str, str | None]]:
    """Returns texts and pairs, lower-cased and as the tokenizer normalises them: no input passes 266 tokens."""
    from albert_tf.text.tokenizer_files import load_tokenizer

    tokenizer = load_tokenizer(spm_model_file)
    single = [(row["sentence"], None) for row in read_tsv(data_dir / "SST-2" / "dev.tsv")]
    double = [(row["question"], row["sentence"]) for row in read_tsv(data_dir / "QNLI" / "dev.tsv")[:400]]
    double += [(row["sentence1"], row["sentence2"]) for row in read_tsv(data_dir / "RTE" / "dev.tsv")]
    pairs = [(cut(tokenizer, a, MAX_TOKENS - 2), None) for a, _ in single]
    for a, b in double:
        a = cut(tokenizer, a, (MAX_TOKENS - 3) // 2)
        pairs.append((a, cut(tokenizer, b, MAX_TOKENS - 3 - len(tokenizer.encode(a)))))
    random.Random(0).shuffle(pairs)
    return pairs


def read_tsv(path: Path) -> list[dict[str, str]]:
    """Returns the rows of one of GLUE's files, which have no quoting."""
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def cut(tokenizer, text: str, length: int) -> str:
    """Returns the text as the tokenizer normalises it, without the words that would pass `length` tokens."""
    words = tokenizer.normalize(text).split()
    while len(tokenizer.encode(" ".join(words))) > length:
        words.pop()
    return " ".join(words)


def make_model(directory: Path, spm_model_file: Path) -> None:
    """Writes ALBERT-base with random weights as a run's directory, and converted for Hugging Face."""
    import tensorflow as tf

    from albert_tf.architecture.config import AlbertConfig
    from albert_tf.checkpoints.converter import convert
    from albert_tf.model.heads import AlbertWithHeads
    from albert_tf.model.variables import named_variables
    from albert_tf.settings.conversion import ConvertConfig
    from albert_tf.text.tokenizer_files import load_tokenizer

    config = AlbertConfig.load(ROOT / "configs" / "albert_base.json")
    variables = named_variables(AlbertWithHeads(config, heads=()))
    rng = np.random.default_rng(0)
    for name, variable in variables.items():  # biases too: TensorFlow would drop zeros from the graph
        variable.assign(rng.normal(1.0 if name.endswith("gamma") else 0.0, 0.04, variable.shape).astype(np.float32))
    model = directory / "model"
    model.mkdir()
    tf.train.Checkpoint(weights=variables).write(str(model / "model.ckpt-0"))
    config.save(model / "albert_config.json")
    load_tokenizer(spm_model_file).save(model / "tokenizer")
    convert(ConvertConfig(source=str(model), target=str(directory / "model_hf"), target_format="hf"))


class Engine:
    """An engine in a process of its own."""

    def __init__(self, name: str, directory: Path, peers_python: str, environment: dict[str, str] | None = None):
        python = sys.executable if name.startswith("albert_tf") else peers_python
        self.errors = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115  # closed by close
        self.process = subprocess.Popen(
            [python, str(WORKER), name, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.started = self.process.stdout.readline().strip() == "ready"
        if not self.started:
            reason = Path(self.errors.name).read_text().strip().splitlines()[-1:]
            print(f"left out: {name} ({' '.join(reason)})")

    def ask(self, *words) -> dict:
        """Sends a command and returns the answer."""
        print(*words, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()
        self.errors.close()


def throughput(engines: dict[str, Engine], options) -> None:
    """Prints sequences and tokens a second of each engine, and the ratios to ours."""
    counts = {name: options.slow_inputs if name in SLOW else options.inputs for name in engines}
    answers = defaultdict(list)
    for name, engine in engines.items():
        engine.ask(0, counts[name] if name not in SLOW else 32)  # shapes are met for the first time
    for _ in range(options.rounds):
        for name, engine in engines.items():
            answers[name].append(engine.ask(0, counts[name]))
            print(f"{name}: {counts[name] / answers[name][-1]['seconds']:.1f} a second", file=sys.stderr, flush=True)
    print("\n| engine | sequences/s (each round) | tokens/s | padding | albert_tf bfloat16 is faster by |")
    print("|---|---|---|---|---|")
    ours = np.array([counts.get(OURS, 0) / answer["seconds"] for answer in answers.get(OURS, [])])
    for name, rounds in answers.items():
        rates = np.array([counts[name] / answer["seconds"] for answer in rounds])
        tokens, padded = rounds[0]["tokens"], rounds[0]["padded"]
        rate = np.median([tokens / answer["seconds"] for answer in rounds])
        ratio = f"{np.median(ours / rates):.2f}" if len(ours) else "-"
        each = ", ".join(f"{value:.1f}" for value in rates)
        print(f"| {name} | {np.median(rates):.1f} ({each}) | {rate:,.0f} | {padded / tokens - 1:.1%} | {ratio} |")


def cosines(engines: dict[str, Engine], directory: Path, options) -> None:
    """Prints the cosine of ours in bfloat16 to ours in float32, of every input."""
    if OURS not in engines:
        return
    exact = Engine(OURS_FLOAT32, directory, options.peers_python)
    embeddings = []
    for number, engine in enumerate((engines[OURS], exact)):
        engine.ask(0, options.inputs)
        engine.ask("save", directory / f"{number}.npy")
        embeddings.append(np.load(directory / f"{number}.npy"))
    exact.close()
    a, b = (e / np.linalg.norm(e, axis=1, keepdims=True) for e in embeddings)
    cosine = (a * b).sum(1)
    print(f"\ncosine of bfloat16 to float32: least {cosine.min():.5f}, median {np.median(cosine):.5f}")


def latencies(engines: dict[str, Engine], runs: int) -> None:
    """Prints the milliseconds of single inputs."""
    print("\n| one input of | " + " | ".join(f"{length} tokens" for length in LENGTHS) + " |  (ms, p50 / p95)")
    print("|---|" + "---|" * len(LENGTHS))
    seconds = defaultdict(lambda: defaultdict(list))
    for length in LENGTHS:
        for engine in engines.values():
            engine.ask("latency", length, 2)
        for _ in range(3):
            for name, engine in engines.items():
                seconds[name][length] += engine.ask("latency", length, -(-runs // 3))
    for name, by_length in seconds.items():
        cells = [np.percentile(np.array(by_length[length]) * 1e3, [50, 95]) for length in LENGTHS]
        print(f"| {name} | " + " | ".join(f"{p50:.1f} / {p95:.1f}" for p50, p95 in cells) + " |")


def profile(directory: Path) -> None:
    """Prints where the time of 400 inputs goes, by oneDNN's own record of its primitives."""
    engine = Engine(OURS, directory, sys.executable, {"ONEDNN_VERBOSE": "1"})
    engine.ask(0, 400)
    begin = os.path.getsize(engine.errors.name)
    seconds = engine.ask(0, 400)["seconds"]
    lines = Path(engine.errors.name).read_text()[begin:].splitlines()
    engine.close()
    total = defaultdict(float)
    for line in lines:
        fields = line.split(",")
        if "exec" in fields:
            at = fields.index("exec")
            shape = re.sub(r"mb\d+", "", fields[-2]) if fields[at + 2] == "inner_product" else ""
            fused = re.search(r"post-ops:(\S+)", line)
            total[f"{fields[at + 2]} {shape} {fused[1].split(',')[0] if fused else ''}".strip()] += (
                float(fields[-1]) / 1e3
            )
    print(f"\n| where the time goes ({seconds:.2f} s) | |\n|---|---|")
    for kind, spent in sorted(total.items(), key=lambda item: -item[1])[:12]:
        print(f"| {kind} | {spent / seconds:.1%} |")
    print(
        f"| all else (gathers, adds, masks, TensorFlow's own work, Python) | {1 - sum(total.values()) / seconds:.1%} |"
    )


def describe_machine() -> str:
    """Returns processor and versions."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    import tensorflow as tf

    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model[1] if model else platform.processor()}, TensorFlow {tf.__version__}"


if __name__ == "__main__":
    main()
