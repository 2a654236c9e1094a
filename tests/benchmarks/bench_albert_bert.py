"""ALBERT against BERT on a CPU: the table, the plot and the checks of CPU.md.

    PYTHONPATH=. python tests/benchmarks/bench_albert_bert.py --data_dir=GLUE --spm_model_file=spiece.model \
        [--plot=cpu_latency.png] [--models='tiny;small;base;large;xlarge'] [--results=figures.json]

Every model is this project's encoder with random weights (seed 0) in the inference engine, in a process of its own; the
BERT shapes are the ALBERT ones with sharing `none` and E = H. Latency: pooled output of one input, median. Throughput:
the first inputs of bench_inference.py's workload. The processes take turns, so that drift of the machine's speed is
shared. `base, not shared` is ALBERT-base with sharing `none`: it differs from ALBERT-base in nothing but the number of
weights, and so isolates what sharing does to speed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[2]
LENGTHS = (16, 32, 64, 128, 256, 512)
SHOWN = (16, 64, 128, 512)
SEED = 0
BERT = {"bert-base": "base", "bert-large": "large"}
NOT_SHARED = "base, not shared"
MODELS = ("tiny", "small", "base", "large", "xlarge", "xxlarge", *BERT, NOT_SHARED)


def main() -> None:
    """Measures the models, prints the table and draws the plot; as a worker, serves one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--spm_model_file", type=Path)
    parser.add_argument("--models", default=";".join(MODELS), help="separated by ;")
    parser.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--seconds", type=float, default=4.0, help="for a model's throughput, and for its latencies")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--results", type=Path, help="JSON to which figures are added; the table shows all in it")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.precision, options.spm_model_file)
        return
    results = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    results |= measure(options)
    if options.results:
        options.results.write_text(json.dumps(results))
    print_table(results, options)
    if options.plot:
        draw(results, options.plot)


def model_config(name: str):
    """Returns the configuration of a name in MODELS."""
    from albert_tf.architecture.config import AlbertConfig

    values = AlbertConfig.load(ROOT / "configs" / f"albert_{BERT.get(name, name.split(',')[0])}.json").to_dict()
    if name in BERT or name == NOT_SHARED:
        values["parameter_sharing"] = "none"
    if name in BERT:
        values["embedding_size"] = values["hidden_size"]
    return AlbertConfig.from_dict(values)


def serve(name: str, precision: str, spm_model_file: Path) -> None:
    """Makes a model, and answers "latency LENGTH SECONDS" and "throughput FILE SECONDS" with JSON."""
    import tensorflow as tf

    from albert_tf.architecture.weight_names import weight_names
    from albert_tf.inference.engine import Engine
    from albert_tf.inference.fast_graph import POOLED, answer_function
    from albert_tf.text.tokenizer_files import load_tokenizer

    tokenizer, before = load_tokenizer(spm_model_file), peak_bytes()
    config, rng = model_config(name), np.random.default_rng(SEED)
    weights = {}
    for weight in weight_names(config, ()):
        mean = 1.0 if weight.tf1_name.endswith("gamma") else 0.0
        weights[weight.tf1_name] = mean + rng.standard_normal(weight.shape, np.float32) * np.float32(0.02)
    function = answer_function(weights, config, output=POOLED, dtype=tf.as_dtype(precision))
    engine = Engine(
        lambda _: lambda *inputs: function(*map(tf.constant, inputs)).numpy(),
        tokenizer,
        outputs=[POOLED],
        max_seq_length=config.max_position_embeddings,
        fingerprint="",
    )
    first = time.perf_counter()
    engine.embed(["a"])
    print(json.dumps({"weights": sum(value.size for value in weights.values()),
                      "graph_seconds": time.perf_counter() - first}), flush=True)  # fmt: skip
    for line in sys.stdin:
        kind, what, limit = line.split()
        if kind == "latency":
            text = engine.tokenize(["word " * 600])[0]
            text = text._replace(ids=(*text.ids[: int(what) - 1], tokenizer.sep_id), first_length=int(what))
            answer = repeat(lambda text=text: engine.answer_batch([text], output=POOLED), float(limit))
        elif kind == "throughput":
            answer = answer_workload(engine, json.loads(Path(what).read_text()), float(limit))
        else:
            answer = peak_bytes() - before
        print(json.dumps(answer), flush=True)


def repeat(run, limit: float) -> list[float]:
    """Returns the seconds of each of at least 3 runs, after one that is not counted."""
    run()
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < limit:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def answer_workload(engine, pairs: list, limit: float) -> float:
    """Returns inputs a second, over as many of the first inputs as take about `limit` seconds."""
    count = 16
    while True:
        texts, second = zip(*pairs[:count], strict=True)
        start = time.perf_counter()
        engine.embed(texts, [text or "" for text in second])
        seconds = time.perf_counter() - start
        if seconds > limit / 2 or count >= len(pairs):
            return min(count, len(pairs)) / seconds
        count = min(len(pairs), int(count * max(1.5, min(8, limit / seconds))))


def peak_bytes() -> int:
    """Returns the most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(options) -> dict:
    """Returns the figures of each model by name."""
    from bench_inference import make_workload

    workload = Path(f"/tmp/albert_bert_workload_{os.getpid()}.json")
    workload.write_text(json.dumps(make_workload(options.data_dir, options.spm_model_file)))
    command = [
        sys.executable,
        __file__,
        f"--precision={options.precision}",
        f"--spm_model_file={options.spm_model_file}",
    ]
    results, latency, throughput = {}, defaultdict(lambda: defaultdict(list)), defaultdict(list)
    processes = {}
    for name in options.models.split(";"):
        processes[name] = subprocess.Popen(
            [*command, f"--serve={name}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        results[name] = json.loads(processes[name].stdout.readline())
    for _ in range(options.rounds):
        for name, process in processes.items():
            for length in LENGTHS:
                seconds = options.seconds / options.rounds / len(LENGTHS)
                latency[name][length] += ask(process, "latency", length, seconds)
            throughput[name].append(ask(process, "throughput", workload, options.seconds / options.rounds))
    for name, process in processes.items():
        results[name]["memory"] = ask(process, "memory", 0, 0)
        results[name]["latency"] = {str(length): float(np.median(v)) for length, v in latency[name].items()}
        results[name]["throughput"] = float(np.median(throughput[name]))
        process.communicate()
    workload.unlink()
    return results


def ask(process, *words):
    """Sends a command to a worker; returns its answer."""
    print(*words, file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


def flops_per_token(config) -> float:
    """Returns the floating-point operations of all layers' products for a token (attention's own products left out)."""
    per_layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    return 2 * len(config.sharing_plan) * per_layer


def print_table(results: dict, options) -> None:
    """Prints the table, and what checks the explanation."""
    from bench_inference import describe_machine

    print(f"{describe_machine()}; {options.precision}; seed {SEED}\n")
    print(
        "| model | weights | file, float32 | memory | " + " | ".join(f"{n} tokens" for n in SHOWN) + " | sequences/s |"
    )
    print("|---|---|---|---|" + "---|" * (len(SHOWN) + 1))
    for name in (name for name in MODELS if name in results):
        found = results[name]
        sizes = (f"{found['weights'] / 1e6:,.1f} M", f"{found['weights'] * 4 / 1e6:,.0f} MB")
        memory, rate = f"{found['memory'] / 1e6:,.0f} MB", f"{found['throughput']:.1f}"
        times = [f"{found['latency'][str(length)] * 1e3:,.1f} ms" for length in SHOWN]
        print("| " + " | ".join((name, *sizes, memory, *times, rate)) + " |")
    print("\n| model | GFLOP a token | GFLOP/s, 128 tokens | ms a layer, 128 | (H/768)^2 | weights read, 16 tokens |")
    print("|---|---|---|---|---|---|")
    for name in (name for name in MODELS if name in results):
        config, at_128, at_16 = model_config(name), *(results[name]["latency"][n] for n in ("128", "16"))
        layers = len(config.sharing_plan)
        read = flops_per_token(config) / 2 * (2 if options.precision == "bfloat16" else 4)
        print(f"| {name} | {flops_per_token(config) / 1e9:.3f} | {flops_per_token(config) * 128 / at_128 / 1e9:,.0f} | "
              f"{at_128 / layers * 1e3:.2f} | {(config.hidden_size / 768) ** 2:.2f} | "
              f"{read / at_16 / 1e9:.1f} GB/s |")  # fmt: skip


def draw(results: dict, path: Path) -> None:
    """Draws latency against length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for name in (name for name in MODELS if name in results and name != NOT_SHARED):
        milliseconds = [results[name]["latency"][str(length)] * 1e3 for length in LENGTHS]
        label = name if name in BERT else f"albert-{name}"
        axes.plot(LENGTHS, milliseconds, marker="o", linestyle="--" if name in BERT else "-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="milliseconds", title="One input on 2 cores, bfloat16")
    axes.set_xticks(LENGTHS, LENGTHS)
    axes.minorticks_off()
    axes.grid(alpha=0.3, which="both")
    axes.legend(ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
