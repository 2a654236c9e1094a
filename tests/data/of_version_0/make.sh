#!/bin/bash
# Makes of_version_0/: what the code of the flat layout before 2026-12-07 (commit 2aedb15) writes, kept as test data.
#
#     BASE=<checkout of that commit> PYTHON=<its python> OUT=<new directory> bash make.sh
#
# About three minutes on two cores. Everything is made in $WORK, with relative paths, because the unfinished answers
# record the absolute path of their input.
set -euo pipefail
: "${BASE:?the checkout}" "${PYTHON:?the python}" "${OUT:?the directory to make}"
WORK=/tmp/albert_tf_of_version_0
export PYTHONPATH=$BASE TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1
python() { nice -n 5 "$PYTHON" "$@"; }
mkdir "$OUT" "$WORK"
cd "$WORK"

# --- Text: beginnings of four public-domain books, and generated numbers and lines of other scripts.
python - "$BASE/tests/data/books" <<'PY'
import random, sys
from pathlib import Path

books, text = Path(sys.argv[1]), Path("text")
text.mkdir()
for name, pattern in {"alice": "Lewis-Carroll__Alice*", "time_machine": "*Time-Machine*", "rip": "*Rip-Van*", "hollow": "*Hollow*"}.items():
    whole = next(books.glob(pattern)).read_text(encoding="utf-8")[:6_000]
    (text / f"{name}.txt").write_text(whole[: whole.rindex("\n")] + "\n", encoding="utf-8")
draw = random.Random(0)
lines = ["# Numbers and scripts", ""]
for _ in range(300):
    year, many = draw.randrange(1700, 2000), draw.choice((1_000, 11_000, 2_000_000))
    numbers = [f"{draw.randrange(many):,}" for _ in range(3)]
    lines.append(f"In {year}, there were {numbers[0]} sheep; in {year + 1}, {numbers[1]} of 11,008, and 1,905, or {numbers[2]}.")
for _ in range(30):
    lines += ["Ο λόγος ήταν μεγάλος, και η νύχτα ήταν μικρή.", "Мы идём домой, а ночь ещё темна.",
              "今日は雨です。明日は雪です。", "Café, naïve, Straße, Ærø, œuvre, ﬁn, Ⅷ, ½, 10 €."]
(text / "numbers.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
PY

# --- 1. Vocabularies, and what the tokenizers answer.
vocab() {
    python -m data_prep.train_vocab --input_file='text/*.txt' --document_mode=heading --sentence_split=prose \
        --vocab_size=400 "$@"
}
vocab --output_dir=vocab
vocab --output_dir=vocab_cased --nodo_lower_case
python - <<'PY'
import json, random
from pathlib import Path
from albert_tf import load_tokenizer

texts = ["", " ", "\t\n", "a", "A", ".", ",", "1,", "1,905", "11,008", "2,000,000", "1,2,3", "1, 2, 3", "In 1905, he left", "1905,",
         "12,345.67", "£1,000", "€ 9,99", "3,14", "-1,5", "(1,905)", "\"1,905\"", "1,905,", ",1", "a1,", "a1,b", "1,a", "x²,", "½,", "Ⅷ,",
         "٣,٤", "１,２", "१,२", "5,000 sheep, 6,000 goats", "7,,8", "9,.", "8,)", "in 1776,1777,1778", "1,905 or 1,906 or 1,907"]
texts += ["Café", "café", "cafe\u0301", "naïve", "Straße", "STRASSE", "ẞ", "İstanbul", "ıI", "Ærø", "œuvre", "ﬁn", "ﬃ", "Å", "A\u030a",
          "ΛΌΓΟΣ", "λόγος", "Ο λόγος ήταν μεγάλος", "Мы идём домой", "Ёлка", "ёлка", "й", "今日は雨です。", "ガ", "カ\u3099", "한국어", "ᄒ\u1161ᆫ",
          "हिन्दी में", "ไทย", "العربية", "עִבְרִית", "ქართული", "中文，测试", "𝔘𝔫𝔦", "𠮷野家", "😀", "👩‍👩‍👧", "🇫🇷", "e\u0301\u0323", "q\u0307\u0323"]
texts += ["\u00a0a\u00a0b\u00a0", "a\u200bb", "a\u200db", "a\ufeffb", "\ufeffa", "a\u2028b", "a\u0085b", "a\x01b", "a\x7fb", "a\x1fb", "\u3000", "a\u3000b",
          "\ufffd", "a\ufffdb", "\ud800", "\ue000", "\U0010ffff", "\u0301", "\u0301a", "▁", "▁a", "a▁b", "[CLS]", "[SEP] [MASK]", "<pad>", "<unk>",
          "[cls]", "<s>", "``quoted''", "“Oh dear!” said the Rabbit", "it's", "it’s", "don't", "--", "—", "–", "...", "…", "?!", "#1", "a_b", "a/b\\c",
          "a&amp;b", "http://example.org/a?b=1,2", "name@example.org", "C++", "50%", "$5", "a=b", "{x}", "~", "^", "`", "a  b   c", "  lead", "trail  ",
          "a\tb\nc\r\nd", "x" * 200, "ab " * 60, "é" * 40, "1," * 30, "," * 10, "1" * 30, "ÀÉÎÕÜ àéîõü", "UPPER lower MiXeD", "O’Neill", "№5", "™", "½ ⅓ ¼"]
draw = random.Random(1)
books = [line for file in sorted(Path("text").glob("*.txt")) for line in file.read_text(encoding="utf-8").splitlines() if len(line) > 30]
while len(texts) < 300:
    line = draw.choice(books)
    start = draw.randrange(len(line) - 20)
    piece = line[start : start + draw.randrange(5, 90)]
    texts.append(piece.upper() if draw.random() < 0.1 else piece)
texts = list(dict.fromkeys(texts))
for directory in ("vocab", "vocab_cased"):
    tokenizer = load_tokenizer(directory)
    ids = {text: tokenizer.encode(text) for text in texts}
    assert list(ids.values()) == tokenizer.encode_batch(texts)
    with_comma = [piece for piece in tokenizer.vocabulary if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()]
    print(directory, len(texts), "texts; pieces of digits and comma:", with_comma)
    assert with_comma
    found = {"fingerprint": tokenizer.fingerprint, "ids": ids}
    Path(directory, "ids.json").write_text(json.dumps(found, indent=0, ensure_ascii=True) + "\n")
PY

# --- 2. Records.
records() {
    python -m data_prep.create_pretraining_data --spm_model_file=vocab/spiece.model --document_mode=heading \
        --sentence_split=prose --max_seq_length=32 --pair_task=sop --num_workers=1 "$@"
}
records --output_dir=records --input_file='text/*.txt' --dupe_factor=1 --eval_fraction=0.2 --num_shards=2
records --output_dir=records_dynamic --input_file='text/alice.txt,text/rip.txt,text/hollow.txt' --masking=dynamic --dupe_factor=1 \
    --eval_fraction=0.2 --num_shards=2

# --- 3. Runs: one to the end, and one that is killed right after the checkpoint and the evaluation of step 20.
config() {  # config FILE GROUPS
    cat >"$1" <<JSON
{
  "attention_probs_dropout_prob": 0.1,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "embedding_size": 16,
  "hidden_size": 32,
  "initializer_range": 0.02,
  "intermediate_size": 64,
  "max_position_embeddings": 32,
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_hidden_groups": $2,
  "inner_group_num": 1,
  "type_vocab_size": 2,
  "vocab_size": 400
}
JSON
}
config albert_config.json 1
config albert_config_adamw.json 2
COMMON=(--num_train_steps=40 --save_checkpoints_steps=20 --iterations_per_loop=5 --eval_batch_size=16 --learning_rate=0.005
    --precision=float32)
LAMB=("${COMMON[@]}" --albert_config_file=albert_config.json --optimizer=lamb --train_batch_size=16
    --input_file='records/train-*' --eval_input_file='records/eval-*')
ADAMW=("${COMMON[@]}" --albert_config_file=albert_config_adamw.json --optimizer=adamw --train_batch_size=8
    --gradient_accumulation_steps=2 --init_output_bias=unigram
    --input_file='records_dynamic/train-*' --eval_input_file='records_dynamic/eval-*')
# The same command in a process that gets SIGKILL when evaluate_checkpoint returns at step 20: nothing else is changed.
killed() {
    python -c '
import os, signal, sys
from albert_tf import train_loop
from albert_tf.run_pretraining import main

evaluate = train_loop.TrainLoop.evaluate_checkpoint

def evaluate_and_die(loop, requests=()):
    evaluate(loop, requests)
    if loop.step == 20:
        os.kill(os.getpid(), signal.SIGKILL)

train_loop.TrainLoop.evaluate_checkpoint = evaluate_and_die
sys.exit(main(sys.argv))' "$@" || [ $? = 137 ]
}
final() {  # final DIRECTORY NAME: weights and metrics of the run that was not killed
    python - "$@" <<'PY'
import json, sys
from pathlib import Path
import numpy as np
from albert_tf import open_checkpoint

directory, name = sys.argv[1:]
checkpoint = open_checkpoint(f"{directory}/model.ckpt-40")
np.savez_compressed(f"{name}_weights_at_40.npz", **{weight: checkpoint.read(weight) for weight in checkpoint.shapes})
lines = Path(directory, "metrics.jsonl").read_text().splitlines(keepends=True)
Path(f"{name}_metrics_21_to_40.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] > 20))
PY
}
check() {  # check NAME COMMAND...: a copy of the killed run goes on, and has the same bits and metrics
    local name=$1
    cp -r "$name" "continued_$name"
    python -m albert_tf.run_pretraining "${@:2}" --output_dir="continued_$name"
    python - "$name" <<'PY'
import json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from albert_tf import open_checkpoint

name = sys.argv[1]
checkpoint, kept = open_checkpoint(f"continued_{name}"), np.load(f"{name}_weights_at_40.npz")
assert set(checkpoint.shapes) == set(kept.files)
for weight in kept.files:
    assert kept[weight].dtype == np.float32 and kept[weight].tobytes() == checkpoint.read(weight).tobytes(), weight
one, other = (tf.train.load_checkpoint(f"{directory}_{name}/model.ckpt-40") for directory in ("whole", "continued"))
keys = [key for key in one.get_variable_to_shape_map() if not key.startswith("_")]
for key in keys:
    assert one.get_tensor(key).tobytes() == other.get_tensor(key).tobytes(), key
timed = ("tokens_per_second", "steps_per_second", "utilisation", "data_wait")
read = lambda path: [{k: v for k, v in json.loads(line).items() if k not in timed} for line in Path(path).read_text().splitlines()]
whole, continued = (read(f"{directory}_{name}/metrics.jsonl") for directory in ("whole", "continued"))
assert whole == continued and [e for e in continued if e["step"] > 20] == read(f"{name}_metrics_21_to_40.jsonl")
print(name, "continued: the same bits in", len(keys), "tensors, and the same metrics in", len(whole), "lines")
PY
}
python -m albert_tf.run_pretraining "${LAMB[@]}" --output_dir=whole_run
killed "${LAMB[@]}" --output_dir=run
python -m albert_tf.run_pretraining "${ADAMW[@]}" --output_dir=whole_run_adamw
killed "${ADAMW[@]}" --output_dir=run_adamw
final whole_run run
final whole_run_adamw run_adamw
rm -r run/tensorboard run_adamw/tensorboard # named after the machine; a run goes on without them
check run "${LAMB[@]}"
check run_adamw "${ADAMW[@]}"

# --- 4. The export of run/ (step 20), and what its serving_default answers.
cat >texts.txt <<'TXT'
Call me Ishmael.
It was a dark and stormy night.
In 1905, there were 11,008 sheep, and 1,905 of them were black.
“Oh dear!” said the White Rabbit to itself, “I shall be late!”
Café, naïve, Straße.
Мы идём домой, а ночь ещё темна.
今日は雨です。
a
TXT
python -m albert_tf.export_saved_model --checkpoint=run --output_dir=export --version=1 --precision=float32
python - <<'PY'
from pathlib import Path
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401

texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
serve = tf.saved_model.load("export/1").signatures["serving_default"]
answers = {name: value.numpy() for name, value in serve(text=tf.constant(texts)).items()}
print({name: (value.shape, value.dtype) for name, value in answers.items()})
np.savez_compressed("export/answers.npz", texts=np.array(texts), **answers)
PY

# --- 5. A Keras file, as in the README's "In Python".
python - <<'PY'
from pathlib import Path
import keras
import numpy as np
from albert_tf import load_encoder, open_checkpoint, pack_texts

path = "run"
texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
keras.utils.set_random_seed(1)
tokenizer = open_checkpoint(path).load_tokenizer()
encoder = load_encoder(path)
features = pack_texts(tokenizer, texts, max_seq_length=32)
inputs = {name: keras.Input([None], dtype="int32", name=name) for name in features}
classifier = keras.Model(inputs, keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))
classifier.compile(keras.optimizers.AdamW(3e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
classifier.fit(features, np.array([0, 1] * 4), epochs=3, verbose=0)
classifier.save("encoder.keras")
logits, pooled = np.array(classifier(features)), np.array(encoder(features)["pooled_output"])
sequence = np.array(encoder(features)["sequence_output"])
np.savez_compressed("encoder_outputs.npz", **features, logits=logits, pooled_output=pooled, sequence_output=sequence)
PY
python - <<'PY'
import keras
import numpy as np
import albert_tf.encoder  # noqa: F401

kept = dict(np.load("encoder_outputs.npz"))
features = {name: kept[name] for name in ("input_ids", "input_mask", "segment_ids")}
assert np.array_equal(np.array(keras.models.load_model("encoder.keras")(features)), kept["logits"])
PY

# --- 6. A fine-tuned model: TF1 checkpoint with label_head.json, converted; and run/ for Hugging Face.
python - <<'PY'
import json
from pathlib import Path
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, AlbertWithHeads, load_tokenizer
from albert_tf.checkpoints import named_variables

config = AlbertConfig.load("albert_config.json")
named = named_variables(AlbertWithHeads(config, heads=("sequence_classification",), num_labels=3))
draw = np.random.default_rng(3)
weights = {name: draw.normal(1.0 if name.endswith("gamma") else 0.0, 0.15, variable.shape).astype(np.float32) for name, variable in named.items()}
directory = Path("tf1_classifier")
directory.mkdir()
tf.raw_ops.SaveV2(prefix=f"{directory}/model.ckpt-best", tensor_names=list(weights), shape_and_slices=[""] * len(weights), tensors=list(weights.values()))
config.save(directory / "albert_config.json")
load_tokenizer("vocab").save(directory)
(directory / "label_head.json").write_text(json.dumps({"head": "sequence_classification", "labels": ["negative", "neutral", "positive"]}))
PY
python -m albert_tf.convert_checkpoint --source=tf1_classifier --target=classifier
python -m albert_tf.convert_checkpoint --source=run --target=hf --target_format=hf
python - <<'PY'
from pathlib import Path
import numpy as np
from albert_tf import load_engine

texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
engine = load_engine("classifier", precision="float32")
print(engine.outputs, engine.labels)
answers = {name: np.stack(engine.answer(engine.tokenize(texts), output=name)) for name in engine.outputs}
np.savez_compressed("classifier_answers.npz", texts=np.array(texts), labels=np.array(engine.labels), fingerprint=np.array(engine.fingerprint), **answers)
PY

# --- 7. What a killed run_inference leaves. Windows of 4 texts in place of 8192; SIGKILL after the first commit.
mkdir answers.partial
cp texts.txt answers.partial/texts.txt
touch -d @1780000000 answers.partial/texts.txt
INFERENCE=(--checkpoint=run --precision=float32 --long_texts=cut --input=answers.partial/texts.txt)
python -c '
import os, signal, sys
from albert_tf import answer_files, inference
from albert_tf.run_inference import main

commit = answer_files.AnswerFile.commit

def commit_and_die(file, **progress):
    commit(file, **progress)
    os.kill(os.getpid(), signal.SIGKILL)

inference.WINDOW = 4
answer_files.AnswerFile.commit = commit_and_die
sys.exit(main(sys.argv))' "${INFERENCE[@]}" --output=answers.partial/out.npy || [ $? = 137 ]
python -m albert_tf.run_inference "${INFERENCE[@]}" --output=whole.npy
mkdir continued_answers
cp answers.partial/.out.npy.* continued_answers/
python -m albert_tf.run_inference "${INFERENCE[@]}" --output=continued_answers/out.npy
python - <<'PY'
import numpy as np

whole, continued = np.load("whole.npy"), np.load("continued_answers/out.npy")
assert whole.shape == (8, 32) and np.abs(whole - continued).max() < 1e-6, np.abs(whole - continued).max()
print("answers continued: greatest difference", np.abs(whole - continued).max())
PY
cp whole.npy answers.partial/expected.npy

# --- What is kept. The export is left out: with its own vocabulary it is larger than 1.5 MiB. It goes to $OUT.export.
cp -rp text vocab vocab_cased albert_config.json albert_config_adamw.json records records_dynamic run run_adamw run_weights_at_40.npz \
    run_adamw_weights_at_40.npz run_metrics_21_to_40.jsonl run_adamw_metrics_21_to_40.jsonl encoder.keras encoder_outputs.npz \
    classifier classifier_answers.npz hf answers.partial texts.txt "$OUT/"
cp -rp export "$OUT.export"
du -sb "$OUT.export/1"
# Six directories hold a copy of vocab/spiece.model, byte for byte. Links to it save 1.4 MiB; LINKS=no keeps the copies.
if [ "${LINKS:-yes}" = yes ]; then
    cd "$OUT"
    for file in */tokenizer/spiece.model hf/spiece.model; do
        cmp vocab/spiece.model "$file"
        ln -sfr vocab/spiece.model "$file"
    done
fi
echo "All made in $OUT; $WORK can be removed."
