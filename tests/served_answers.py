"""What an export should answer to texts: from the Keras model, the Python tokenizer and numpy."""

import numpy as np
import tensorflow as tf

MAX_SEQ_LENGTH = 64  # positions of the golden models
MAX_ANSWER_TOKENS = 30


def normalized_text(tokenizer, text):
    """What the graph is to make of a text: some noncharacters, and in SentencePiece NUL, stand in for each other."""
    return tokenizer.normalize(text).replace("\ufffe", "\uffff").replace("\0", "\uffff")


def pack(tokenizer, first, second=()):
    """Returns ids and segment ids of one example, cut as the original cuts."""
    first, second = list(first), list(second)
    while len(first) + len(second) > MAX_SEQ_LENGTH - (3 if second else 2):
        (first if len(first) > len(second) else second).pop()
    tail = [*second, tokenizer.sep_id] if second else []
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id, *tail]
    return ids, [0] * (len(first) + 2) + [1] * len(tail)


def pack_texts(tokenizer, pairs):
    """Returns ids and segment ids of each pair of texts."""
    return [pack(tokenizer, tokenizer.encode(first), tokenizer.encode(second)) for first, second in pairs]


def batch_of(packed):
    """Returns the inputs of a Keras model for packed examples."""
    length = max(len(ids) for ids, _ in packed)
    batch = {"input_ids": [ids + [0] * (length - len(ids)) for ids, _ in packed],
             "segment_ids": [segments + [0] * (length - len(segments)) for _, segments in packed],
             "input_mask": [[1] * len(ids) + [0] * (length - len(ids)) for ids, _ in packed]}  # fmt: skip
    return {name: tf.constant(value, tf.int32) for name, value in batch.items()}


def encode(model, packed):
    """Runs the Keras model's encoder on packed examples; returns its outputs as arrays."""
    outputs = model.encoder(batch_of(packed))
    return {name: outputs[name].numpy() for name in ("sequence_output", "pooled_output") if name in outputs}


def embeddings(model, tokenizer, packed):
    """Returns the embeddings of packed examples by name."""
    outputs, means = encode(model, packed), []
    for (ids, _), sequence in zip(packed, outputs["sequence_output"], strict=True):
        inside = [i for i, piece in enumerate(ids) if piece not in (tokenizer.cls_id, tokenizer.sep_id)]
        means.append(sequence[inside].mean(0) if inside else np.zeros(sequence.shape[1]))
    found = {"mean_embedding": np.stack(means), "cls_embedding": outputs["sequence_output"][:, 0]}
    return {**found, "pooled_embedding": outputs["pooled_output"]} if model.has_pooler else found


def context_of(tokenizer, packed):
    """Returns bool [batch, seq]: the tokens of second texts."""
    batch = batch_of(packed)
    return (batch["segment_ids"].numpy() == 1) & (batch["input_ids"].numpy() != tokenizer.sep_id)


def question_outputs(model, tokenizer, packed):
    """Runs the Keras model of SQuAD on packed pairs; returns its outputs as arrays."""
    may_answer = context_of(tokenizer, packed)
    may_answer[:, 0] = True
    outputs = model({**batch_of(packed), "p_mask": tf.constant(~may_answer, tf.int32)})
    return {name: value.numpy() for name, value in outputs.items() if name != "encoder_layers"}


def span_probabilities(outputs, row, context):
    """Returns the probability of each possible answer of a row by its first and last token."""
    inside = np.flatnonzero(context)
    if "end_logits" in outputs:
        names = ("start_logits", "end_logits")
        start, end = (tf.nn.log_softmax(outputs[name][row][inside]).numpy() for name in names)
        spans = {(i, j): start[a] + end[b] for a, i in enumerate(inside) for b, j in enumerate(inside)}
    else:
        names = ("start_top_index", "start_top_log_probs", "end_top_index", "end_top_log_probs")
        starts, start_scores, ends, end_scores = (outputs[name][row] for name in names)
        spans = {(starts[k // 5], ends[k]): start_scores[k // 5] + end_scores[k] for k in range(25)}
        spans = {(i, j): score for (i, j), score in spans.items() if context[i] and context[j]}
    return {(i, j): np.exp(score) for (i, j), score in spans.items() if i <= j < i + MAX_ANSWER_TOKENS}
