"""The engines that bench_inference.py compares, each in a process of its own, with whatever Python has its packages.

    python inference_engines.py ENGINE DIRECTORY

DIRECTORY holds workload.json (a list of [text, pair or null]) and model/ (weights for all engines). The process reads
"first last" from standard input, answers these inputs, and prints {"seconds": ..., "tokens": ..., "padded": ...} as
JSON; "save FILE" stores the last answers; "latency LENGTH COUNT" prints a list of seconds of single inputs.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
BATCH = 32


class Ours:
    """This project's engine."""

    def __init__(self, directory, precision):
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from albert_tf.inference import engine

        self.module = engine
        self.engine = engine.load_engine(directory / "model", precision=precision)

    def embed(self, pairs):
        """Returns the embeddings; counts tokens by the same plan as the engine does."""
        texts, second = zip(*pairs, strict=True)
        return self.engine.embed(texts, [text or "" for text in second])

    def count(self, pairs):
        """Returns the number of tokens and of places in batches."""
        texts, second = zip(*pairs, strict=True)
        unique = set(self.engine.tokenize(texts, second))
        lengths = np.sort([len(text.ids) for text in unique])[::-1]
        plan = self.module.plan_batches(lengths, max_tokens=self.module._BATCH_TOKENS)
        return int(lengths.sum()), int(sum(lengths[b].max() * len(lengths[b]) for b in plan))

    def one(self, length):
        """Returns a function that embeds one input of `length` tokens."""
        text = self.module.TokenizedText((2, *range(1000, 998 + length), 3), length, False)
        return lambda: self.engine.answer_batch([text], output="pooled_embedding")


class Transformers:
    """Hugging Face transformers on torch, in batches of 32, in the order given or sorted by length."""

    def __init__(self, directory, precision, *, in_order=False):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        self.torch = torch
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.in_order = in_order
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "model_hf")
        model = transformers.AlbertModel.from_pretrained(directory / "model_hf").eval()
        self.model = self.prepare(model, precision)

    def prepare(self, model, precision):
        """Returns the model in its precision."""
        if precision == "int8":
            linear = {self.torch.nn.Linear}
            return self.torch.ao.quantization.quantize_dynamic(model, linear, dtype=self.torch.qint8)
        return model.to(getattr(self.torch, precision))

    def run(self, batch):
        """Returns pooled outputs of a batch of ids, float32."""
        with self.torch.inference_mode():
            return self.model(**{k: self.torch.tensor(v) for k, v in batch.items()}).pooler_output.float().numpy()

    def embed(self, pairs):
        """Tokenises, sorts, runs; returns embeddings in the order given."""
        encoded, order = self.encode(pairs)
        answers = None
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = self.tokenizer.pad({k: [v[i] for i in rows] for k, v in encoded.items()}, return_tensors="np")
            pooled = self.run(dict(batch))
            answers = np.empty((len(pairs), pooled.shape[1]), np.float32) if answers is None else answers
            answers[rows] = pooled
        return answers

    def encode(self, pairs):
        """Returns the ids of all inputs and the order to take them in."""
        single, double = [i for i, p in enumerate(pairs) if not p[1]], [i for i, p in enumerate(pairs) if p[1]]
        names = ("input_ids", "token_type_ids", "attention_mask")
        encoded = {name: [None] * len(pairs) for name in names}
        for places, second in ((single, None), (double, [pairs[i][1] for i in double])):
            if places:
                found = self.tokenizer([pairs[i][0] for i in places], second, return_token_type_ids=True)
                for name in names:
                    for place, value in zip(places, found[name], strict=True):
                        encoded[name][place] = value
        order = list(range(len(pairs)))
        if not self.in_order:
            order.sort(key=lambda i: len(encoded["input_ids"][i]))
        return encoded, order

    def count(self, pairs):
        """Returns the number of tokens and of places in batches."""
        encoded, order = self.encode(pairs)
        lengths = [len(encoded["input_ids"][i]) for i in order]
        batches = [lengths[i : i + BATCH] for i in range(0, len(lengths), BATCH)]
        return sum(lengths), sum(max(batch) * len(batch) for batch in batches)

    def one(self, length):
        """Returns a function that embeds one input of `length` tokens."""
        ids = np.array([[2, *range(1000, 998 + length), 3]])
        batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
        return lambda: self.run(batch)


class OpenVino(Transformers):
    """The same with the model compiled by OpenVINO."""

    def prepare(self, model, precision):
        """Returns the compiled model."""
        import openvino

        names = ("input_ids", "token_type_ids", "attention_mask")
        converted = openvino.convert_model(model, example_input={n: self.torch.ones(2, 12).long() for n in names})
        hints = {"INFERENCE_PRECISION_HINT": {"bfloat16": "bf16", "float32": "f32"}[precision],
                 "PERFORMANCE_HINT": "LATENCY"}  # fmt: skip
        return openvino.Core().compile_model(converted, "CPU", hints)

    def run(self, batch):
        """Returns pooled outputs of a batch of ids, float32."""
        return self.model(dict(batch))[1]


ENGINES = {
    "albert_tf bfloat16": lambda d: Ours(d, "bfloat16"),
    "albert_tf float32": lambda d: Ours(d, "float32"),
    "transformers bfloat16, sorted": lambda d: Transformers(d, "bfloat16"),
    "transformers int8, sorted": lambda d: Transformers(d, "int8"),
    "transformers float32, sorted": lambda d: Transformers(d, "float32"),
    "transformers float32, file order": lambda d: Transformers(d, "float32", in_order=True),
    "OpenVINO bfloat16, sorted": lambda d: OpenVino(d, "bfloat16"),
    "OpenVINO float32, sorted": lambda d: OpenVino(d, "float32"),
}


def main():
    """Serves one engine."""
    name, directory = sys.argv[1], Path(sys.argv[2])
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print does not disturb the answers
    pairs = json.loads((directory / "workload.json").read_text(encoding="utf-8"))
    engine = ENGINES[name](directory)
    print("ready", file=answer)
    embeddings = None
    for line in sys.stdin:
        command = line.split()
        if command[0] == "save":
            np.save(command[1], embeddings)
            print("{}", file=answer)
        elif command[0] == "latency":
            run, seconds = engine.one(int(command[1])), []
            for _ in range(int(command[2])):
                start = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - start)
            print(json.dumps(seconds), file=answer)
        else:
            part = pairs[int(command[0]) : int(command[1])]
            start = time.perf_counter()
            embeddings = engine.embed(part)
            seconds = time.perf_counter() - start
            tokens, padded = engine.count(part)
            print(json.dumps({"seconds": seconds, "tokens": tokens, "padded": padded}), file=answer)


if __name__ == "__main__":
    main()
