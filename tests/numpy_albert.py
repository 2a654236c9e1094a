"""An independent ALBERT forward pass in NumPy float64, from variables by TF1 name: the oracle of the model's tests.

Written from the paper and the published variable shapes; shares no code with albert_tf.
"""

import math

import numpy as np

_erf = np.vectorize(math.erf)


def _activation(name, x):
    return {
        "gelu_tanh": lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "gelu_erf": lambda: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
        "relu": lambda: np.maximum(x, 0),
        "tanh": lambda: np.tanh(x),
        "linear": lambda: x,
    }[name]()


def _layer_norm(x, variables, scope):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-12) * variables[f"{scope}/gamma"] + variables[f"{scope}/beta"]


def _dense(x, variables, scope):
    return x @ variables[f"{scope}/kernel"] + variables[f"{scope}/bias"]


def _log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _attention(x, mask, variables, scope, heads):
    batch, length, hidden = x.shape
    split = lambda y: y.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)  # noqa: E731
    q, k, v = (split(_dense(x, variables, f"{scope}/attention_1/self/{part}")) for part in ("query", "key", "value"))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(hidden // heads) + (1.0 - mask[:, None, None, :]) * -10000.0
    context = (np.exp(_log_softmax(scores)) @ v).transpose(0, 2, 1, 3).reshape(batch, length, hidden)
    return _layer_norm(
        x + _dense(context, variables, f"{scope}/attention_1/output/dense"), variables, f"{scope}/LayerNorm"
    )


def _feed_forward(x, variables, scope, activation):
    inner = _activation(activation, _dense(x, variables, f"{scope}/ffn_1/intermediate/dense"))
    output = _dense(inner, variables, f"{scope}/ffn_1/intermediate/output/dense")
    return _layer_norm(x + output, variables, f"{scope}/LayerNorm_1")


def forward(variables, inputs, *, num_layers, num_groups, inner_group_num, heads, activation, mode="all"):
    """Returns the outputs under the names of the golden arrays."""
    variables = {name: np.asarray(value, np.float64) for name, value in variables.items()}
    ids, mask = inputs["input_ids"], np.asarray(inputs["input_mask"], np.float64)
    x = variables["bert/embeddings/word_embeddings"][ids]
    x = x + variables["bert/embeddings/token_type_embeddings"][inputs["segment_ids"]]
    x = x + variables["bert/embeddings/position_embeddings"][: ids.shape[1]]
    x = _layer_norm(x, variables, "bert/embeddings/LayerNorm")
    outputs = {"embedding_output": x}
    if "bert/encoder/embedding_hidden_mapping_in/kernel" in variables:
        x = _dense(x, variables, "bert/encoder/embedding_hidden_mapping_in")
    for layer in range(num_layers):
        group = int(layer / num_layers * num_groups)
        for inner in range(inner_group_num):
            own = f"bert/encoder/transformer/group_{layer}/inner_group_{inner}"
            shared = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
            x = _attention(x, mask, variables, shared if mode in ("all", "attention") else own, heads)
            x = _feed_forward(x, variables, shared if mode in ("all", "ffn") else own, activation)
            outputs[f"encoder_layer_{layer * inner_group_num + inner:02d}"] = x
    outputs["sequence_output"] = x
    outputs["pooled_output"] = np.tanh(_dense(x[:, 0], variables, "bert/pooler/dense"))
    if "cls/predictions/output_bias" in variables:
        gathered = np.take_along_axis(x, inputs["masked_lm_positions"][:, :, None], axis=1)
        y = _activation(activation, _dense(gathered, variables, "cls/predictions/transform/dense"))
        y = _layer_norm(y, variables, "cls/predictions/transform/LayerNorm")
        logits = y @ variables["bert/embeddings/word_embeddings"].T + variables["cls/predictions/output_bias"]
        outputs["masked_lm_log_probs"] = _log_softmax(logits)
    if "cls/seq_relationship/output_bias" in variables:
        logits = outputs["pooled_output"] @ variables["cls/seq_relationship/output_weights"].T
        outputs["sentence_order_log_probs"] = _log_softmax(logits + variables["cls/seq_relationship/output_bias"])
    return outputs
