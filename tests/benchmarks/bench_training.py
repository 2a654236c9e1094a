"""Compares the speed of a pre-training step with transformers and KerasHub, and with the machine's matrix products.

    python tests/benchmarks/bench_training.py --peers_python=/path/to/peers/bin/python
    python tests/benchmarks/bench_training.py --peers_python=... --model=tiny --batch_size=32

The peers live in an environment of their own (torch==2.13.0, transformers, keras-hub, tensorflow). Every engine is a
process; they take turns, one step each, so that what else the machine does meets all of them. The ratio to a peer is
the median over the rounds of the ratio within a round.

A step is forward, backward, clipping by global norm, and AdamW, in bfloat16 with float32 weights, without dropout, on
the same shapes: masked tokens and sentence order. transformers computes logits at every position (its model has no
other way), in bfloat16 autocast with the fused AdamW; KerasHub gathers the masked positions as we do and runs without
XLA, which would be slower here. FLOPs are those of the plain model's matrix products, three times the forward's; ours
leaves out most of the last block, which no head reads, and gains by that.
"""

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

MODELS = {
    "base": {"layers": 12, "hidden": 768, "heads": 12, "inner": 3072},
    "tiny": {"layers": 4, "hidden": 256, "heads": 4, "inner": 1024},
}
VOCABULARY, EMBEDDING, POSITIONS = 30000, 128, 512
RATE = 1e-4
WEIGHT_DECAY = 0.01

Step = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Shape:
    """What one step computes."""

    layers: int
    hidden: int
    heads: int
    inner: int
    batch: int
    length: int
    predictions: int

    @property
    def flops(self) -> float:
        """Floating-point operations of one step of ours."""
        tokens, masked = self.batch * self.length, self.batch * self.predictions
        block = 4 * self.hidden**2 + 2 * self.hidden * self.inner + 2 * self.length * self.hidden
        head = self.hidden * EMBEDDING + EMBEDDING * VOCABULARY
        pooler = self.batch * self.hidden**2
        return 6.0 * (tokens * (self.layers * block + EMBEDDING * self.hidden) + masked * head + pooler)


def ours(shape: Shape) -> Step:
    """Returns a step of this project."""
    import tensorflow as tf

    from albert_tf.architecture.config import AlbertConfig
    from albert_tf.model.heads import AlbertWithHeads
    from albert_tf.model.precision import dtype_policy
    from albert_tf.model.variables import named_variables
    from albert_tf.pretraining.objectives import pretraining_loss, pretraining_metric_names
    from albert_tf.training.optimizers import AlbertOptimizer, LearningRateSchedule
    from albert_tf.training.step import Objective, Trainee, train_step

    config = AlbertConfig(
        vocab_size=VOCABULARY,
        embedding_size=EMBEDDING,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
    )
    model = AlbertWithHeads(config, dtype=dtype_policy("bfloat16"))
    variables = named_variables(model)
    schedule = LearningRateSchedule(RATE, num_train_steps=10_000, num_warmup_steps=10)
    trainee = Trainee.create(model, variables, AlbertOptimizer("adamw", variables, schedule=schedule))
    objective = Objective(pretraining_loss, pretraining_metric_names(model.head_names))
    batch = {name: tf.constant(value) for name, value in random_batch(shape).items()}
    step = tf.function(lambda b: train_step(b, trainee=trainee, objective=objective, random_seed=1))
    return lambda: step(batch).numpy()


def matmul(shape: Shape) -> Step:
    """Returns a step of nothing but bfloat16 products of the feed-forward network's shapes, as many FLOPs as ours."""
    import tensorflow as tf

    tokens = shape.batch * shape.length
    up = tf.cast(tf.random.normal([shape.hidden, shape.inner], stddev=shape.hidden**-0.5), tf.bfloat16)
    down = tf.cast(tf.random.normal([shape.inner, shape.hidden], stddev=shape.inner**-0.5), tf.bfloat16)
    start = tf.cast(tf.random.normal([tokens, shape.hidden]), tf.bfloat16)
    repeats = round(shape.flops / (4.0 * tokens * shape.hidden * shape.inner))

    @tf.function
    def products(x: tf.Tensor, up: tf.Tensor, down: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(repeats):
            x = tf.matmul(tf.matmul(x, up), down)
        return x

    return lambda: products(start, up, down).numpy()


def transformers(shape: Shape) -> Step:
    """Returns a step of transformers' AlbertForPreTraining."""
    import torch
    from transformers import AlbertConfig, AlbertForPreTraining

    torch.set_num_threads(cores())
    config = AlbertConfig(
        vocab_size=VOCABULARY,
        embedding_size=EMBEDDING,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )
    model = AlbertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY, fused=True)
    arrays = random_batch(shape)
    labels = torch.full((shape.batch, shape.length), -100)
    labels.scatter_(1, torch.tensor(arrays["masked_lm_positions"]).long(), torch.tensor(arrays["masked_lm_ids"]).long())
    batch = {
        "input_ids": torch.tensor(arrays["input_ids"]).long(),
        "attention_mask": torch.tensor(arrays["input_mask"]).long(),
        "token_type_ids": torch.tensor(arrays["segment_ids"]).long(),
        "labels": labels,
        "sentence_order_label": torch.tensor(arrays["next_sentence_labels"][:, 0]).long(),
    }

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def keras_hub(shape: Shape) -> Step:
    """Returns a step of KerasHub's AlbertBackbone with its masked-token head and a layer for sentence order."""
    import keras
    import keras_hub as hub
    import tensorflow as tf

    keras.config.set_dtype_policy("mixed_bfloat16")
    backbone = hub.models.AlbertBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=shape.layers,
        num_heads=shape.heads,
        embedding_dim=EMBEDDING,
        hidden_dim=shape.hidden,
        intermediate_dim=shape.inner,
        dropout=0.0,
        max_sequence_length=POSITIONS,
    )
    positions = keras.Input([shape.predictions], dtype="int32", name="mask_positions")
    outputs = backbone.output
    head = hub.layers.MaskedLMHead(
        vocabulary_size=VOCABULARY,
        token_embedding=backbone.token_embedding,
        intermediate_activation=lambda x: keras.activations.gelu(x, approximate=True),
    )
    masked = head(outputs["sequence_output"], mask_positions=positions)
    order = keras.layers.Dense(2)(outputs["pooled_output"])
    model = keras.Model({**backbone.input, "mask_positions": positions}, [masked, order])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(RATE, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0)
    model.compile(optimizer, [loss, loss], jit_compile=False)
    optimizer.build(model.trainable_variables)
    arrays = random_batch(shape)
    features = {
        "token_ids": arrays["input_ids"],
        "padding_mask": arrays["input_mask"],
        "segment_ids": arrays["segment_ids"],
        "mask_positions": arrays["masked_lm_positions"],
    }
    features = {name: tf.constant(value) for name, value in features.items()}
    labels = [tf.constant(arrays["masked_lm_ids"]), tf.constant(arrays["next_sentence_labels"][:, 0])]
    step = tf.function(lambda x, y: model.train_step((x, y)))
    return lambda: step(features, labels)["loss"].numpy()


def random_batch(shape: Shape) -> dict[str, Any]:
    """Returns full-length rows of random tokens, by our names."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows, length, masked = shape.batch, shape.length, shape.predictions
    return {
        "input_ids": rng.integers(5, VOCABULARY, (rows, length), dtype=np.int32),
        "input_mask": np.ones((rows, length), np.int32),
        "segment_ids": np.repeat(np.arange(2, dtype=np.int32), length // 2)[None].repeat(rows, axis=0),
        "masked_lm_positions": np.sort(rng.permuted(np.tile(np.arange(length, dtype=np.int32), (rows, 1)), axis=1)
                                       [:, :masked], axis=1),
        "masked_lm_ids": rng.integers(5, VOCABULARY, (rows, masked), dtype=np.int32),
        "masked_lm_weights": np.ones((rows, masked), np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), dtype=np.int32),
        "example_weights": np.ones(rows, np.float32),
    }  # fmt: skip


ENGINES = {engine.__name__: engine for engine in (ours, matmul, transformers, keras_hub)}


def cores() -> int:
    """Returns the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def work(name: str, shape: Shape) -> None:
    """Runs in a process of its own: makes a step for each line that comes, and answers with its seconds."""
    step = ENGINES[name](shape)
    began = time.perf_counter()
    step()
    print(json.dumps({"first": time.perf_counter() - began}), flush=True)
    step()
    for _ in sys.stdin:
        began = time.perf_counter()
        step()
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


class Worker:
    """The process of one engine."""

    def __init__(self, name: str, python: str, arguments: list[str]) -> None:
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "PYTHONPATH": root}
        command = [python, __file__, f"--worker={name}", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        self.error = "" if line else (self._process.communicate()[1].strip().splitlines() or ["it ended"])[-1]
        self.first = json.loads(line)["first"] if line else 0.0
        self.seconds: list[float] = []
        self.peak = 0

    def step(self) -> None:
        """Makes one step."""
        self._process.stdin.write("\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        answer = json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
        self.seconds.append(answer["seconds"])
        self.peak = answer["peak"]

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def report(workers: dict[str, Worker], shape: Shape) -> None:
    """Prints a line for each engine."""
    tokens = shape.batch * shape.length
    matmul_rate = shape.flops / median(workers["matmul"].seconds)
    print(f"{cores()} cores, {tokens} tokens and {shape.flops / 1e9:.0f} GFLOP a step, {shape}")
    print(f"bfloat16 products: {matmul_rate / 1e9:.0f} GFLOP/s")
    for name, worker in workers.items():
        if name == "matmul":
            continue
        ratio = median(theirs / mine for theirs, mine in zip(worker.seconds, workers["ours"].seconds, strict=True))
        rate = tokens / median(worker.seconds)
        against = f", ours is {ratio:.2f} times as fast" if name != "ours" else ""
        peak = f"{worker.peak / 2**30:.2f} GiB"
        print(f"{name:13s} {rate:8.0f} tokens/s, first step {worker.first:5.1f} s, peak memory {peak}{against}")
    pairs = zip(workers["matmul"].seconds, workers["ours"].seconds, strict=True)
    print(f"ours runs at {median(products / step for products, step in pairs):.0%} of the rate of bfloat16 products")


def main() -> None:
    """Starts the engines, lets them take turns, and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers_python", help="python of the environment that has the peers")
    parser.add_argument("--model", choices=MODELS, default="base")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_predictions_per_seq", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    shape = Shape(
        **MODELS[flags.model],
        batch=flags.batch_size,
        length=flags.max_seq_length,
        predictions=flags.max_predictions_per_seq,
    )
    if flags.worker:
        work(flags.worker, shape)
        return
    workers = {}
    for name in ENGINES:
        python = sys.executable if name in ("ours", "matmul") else flags.peers_python
        worker = Worker(name, python, sys.argv[1:]) if python else None
        if worker is None or worker.error:
            print(f"{name:13s} left out: {worker.error if worker else 'no --peers_python'}")
        else:
            workers[name] = worker
    for _ in range(flags.rounds):
        for worker in workers.values():
            worker.step()
    report(workers, shape)
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
