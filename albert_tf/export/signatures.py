"""The signatures of a served model: plain text or token ids in, embeddings and the heads' answers out.

Every input and output has the batch as its first dimension. Names and dtypes are an interface: they may be added to,
and never change.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.architecture.weight_names import (
    MASKED_LM,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    QUESTION_ANSWERING_V2,
    SENTENCE_ORDER,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from albert_tf.export.graph_packing import Packing, plan_packing
from albert_tf.export.graph_tokenizer import TokenizedText, make_graph_tokenizer
from albert_tf.inference.answer_spans import best_scored_span, best_span
from albert_tf.model.heads import AlbertWithHeads
from albert_tf.model.variables import named_variables
from albert_tf.text.tokenizer_files import Tokenizer

TOP_K = 10  # candidates for a masked token

# Outputs that name the best-scored choices. Two of nearly equal score may change places from one machine to another.
RANKED_OUTPUTS = ("top_ids", "top_pieces", "label", "labels", "choice", "answer", "answer_start", "answer_end")

Outputs = dict[str, tf.Tensor]

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_TEXT_PAIR = tf.TensorSpec([None], tf.string, name="text_pair")
_CHOICES = tf.TensorSpec([None, None], tf.string, name="text_pair")
_TOKENS = (
    tf.TensorSpec([None, None], tf.int32, name="input_ids"),
    tf.TensorSpec([None, None], tf.int32, name="segment_ids"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
_ENCODER_INPUTS = {name: tf.TensorSpec([None, None], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}


def _encode_function(model: AlbertWithHeads) -> Callable[[Outputs], Outputs]:
    def encode(inputs: Outputs) -> Outputs:
        outputs = model.encoder(inputs)
        return {name: outputs[name] for name in ("sequence_output", "pooled_output") if name in outputs}

    return encode


class ServedModel(tf.Module):
    """A model with its tokenizer, as functions of tensors; `labels` are the names of the label head's outputs.

    Tracks variables, and no Keras layer: the loader of TF Serving cannot restore those.
    """

    def __init__(
        self, model: AlbertWithHeads, tokenizer: Tokenizer, *, max_seq_length: int, labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name="albert")
        self.weights = list(named_variables(model).values())  # and not the states of random generators
        self.tokenizer = make_graph_tokenizer(tokenizer)
        self._untracked_model = lambda: model
        # One function in the graph, which all signatures call.
        self._encode = tf.function(_encode_function(model), input_signature=[_ENCODER_INPUTS], autograph=False)
        self._pieces = tokenizer.vocabulary
        self._labels = list(labels)
        self._special_ids = {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id, "pad": tokenizer.pad_id}
        self._mask_id = tokenizer.mask_id
        self._max_seq_length = max_seq_length

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self._untracked_model()

    def signatures(self) -> dict[str, Any]:
        """Returns the concrete functions of the signatures that the model's heads allow, by name."""
        text, pair = [_TEXT], [_TEXT, _TEXT_PAIR]
        functions: dict[str, tuple[Callable[..., Outputs], Sequence[tf.TensorSpec]]] = {
            "serving_default": (self.embeddings, text),
            "serving_pair": (self.embeddings, pair),
            "embeddings": (self.embeddings, text),
            "tokens": (self.tokens, _TOKENS),
            "tokenize": (self.tokenize, text),
        }
        of_heads: dict[str, dict[str, tuple[Callable[..., Outputs], Sequence[tf.TensorSpec]]]] = {
            MASKED_LM: {"mlm": (self.mlm, text)},
            SENTENCE_ORDER: {"sop": (self.sop, pair)},
            SEQUENCE_CLASSIFICATION: {"serving_default": (self.classify, text), "serving_pair": (self.classify, pair)},
            TOKEN_CLASSIFICATION: {"serving_default": (self.label_tokens, text)},
            MULTIPLE_CHOICE: {"serving_default": (self.choose, [_TEXT, _CHOICES])},
            QUESTION_ANSWERING: {"serving_default": (self.answer_question, pair)},
            QUESTION_ANSWERING_V2: {"serving_default": (self.answer_question, pair)},
        }
        for head in self.model.head_names:
            if "serving_default" in of_heads[head]:
                functions.pop("serving_pair", None)
            functions |= of_heads[head]
        return {
            name: tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
            for name, (function, signature) in functions.items()
        }

    def embeddings(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
        """Embeds texts [batch] or pairs of texts; where `text_pair` is empty, `text` stands alone."""
        inputs = self._pack_texts(text, text_pair)
        return self._embeddings_of(self._encode(inputs), inputs)

    def tokens(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, lengths: tf.Tensor) -> Outputs:
        """Embeds token ids [batch, seq] that have their special tokens; `lengths` [batch] counts them.

        With a head that labels texts or tokens its logits are answered too, and with sentence order
        `sentence_order_logits` [batch, 2]. The mask is made here, because a server that batches fills up short rows
        with the first id of the batch.
        """
        seq_length = tf.shape(input_ids)[1]
        rule = f"input_ids may not be longer than {self._max_seq_length} tokens; received"
        with tf.control_dependencies([tf.debugging.Assert(seq_length <= self._max_seq_length, [rule, seq_length])]):
            input_mask = tf.sequence_mask(lengths, seq_length, dtype=tf.int32)
        inputs = {
            "input_ids": tf.where(input_mask > 0, input_ids, self._special_ids["pad"]),
            "input_mask": input_mask,
            "segment_ids": segment_ids * input_mask,
        }
        encoded = self._encode(inputs)
        outputs = self._embeddings_of(encoded, inputs)
        if self.model.sentence_order is not None:
            outputs["sentence_order_logits"] = self.model.sentence_order(encoded["pooled_output"])
        if self.model.sequence_classification is not None:
            outputs["logits"] = self.model.sequence_classification(encoded["pooled_output"])
        if self.model.token_classification is not None:
            outputs["logits"] = self.model.token_classification(encoded["sequence_output"])
        return outputs

    def tokenize(self, text: tf.Tensor) -> Outputs:
        """Returns what the encoder is given for texts [batch], and where each token stands in the normalised text.

        `starts` and `ends` count characters, the end excluded; those of special tokens are 0.
        """
        tokenized = self.tokenizer.tokenize_with_offsets(text)
        return self._token_table(tokenized, self._plan(tokenized.ids))

    def mlm(self, text: tf.Tensor) -> Outputs:
        """Fills in each literal [MASK] of texts [batch] with its `TOP_K` likeliest pieces [batch, masks, k].

        Rows with fewer masks than others end in places of score 0.
        """
        tokens = self.tokenizer.tokenize_masked(text)
        inputs = self._inputs(self._plan(tokens), tokens)
        is_mask = inputs["input_ids"] == self._mask_id
        # All masks of the batch become one row, so that only they meet the vocabulary.
        hidden = tf.boolean_mask(self._encode(inputs)["sequence_output"], is_mask)[None]
        logits = self.model.masked_lm(hidden, self.model.encoder.embeddings.word_embeddings)[0]
        probabilities = tf.nn.softmax(logits)[:, : len(self._pieces)]  # a vocabulary may be padded in the model
        scores, ids = tf.math.top_k(probabilities, k=min(TOP_K, len(self._pieces)))
        num_masks = tf.math.count_nonzero(is_mask, axis=1, dtype=tf.int32)

        def rows(values: tf.Tensor, padding: Any) -> tf.Tensor:
            return tf.RaggedTensor.from_row_lengths(values, num_masks, validate=False).to_tensor(padding)

        return {
            "num_masks": num_masks,
            "top_ids": rows(ids, self._special_ids["pad"]),
            "top_pieces": rows(tf.gather(self._pieces, ids), ""),
            "top_scores": rows(scores, 0.0),
        }

    def sop(self, text: tf.Tensor, text_pair: tf.Tensor) -> Outputs:
        """Judges pairs of texts [batch]: the probability that `text_pair` follows `text`, and not the other way."""
        encoded = self._encode(self._pack_texts(text, text_pair))
        logits = self.model.sentence_order(encoded["pooled_output"])
        return {"in_order_probability": tf.nn.softmax(logits)[:, 0], "logits": logits}

    def classify(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
        """Labels texts [batch] or pairs of texts; with one output (regression) the score is that output."""
        encoded = self._encode(self._pack_texts(text, text_pair))
        logits = self.model.sequence_classification(encoded["pooled_output"])
        if logits.shape[1] == 1:
            return {"score": logits[:, 0], "logits": logits}
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(self._labels, tf.argmax(logits, axis=1)),
            "score": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
            "logits": logits,
        }

    def choose(self, text: tf.Tensor, text_pair: tf.Tensor) -> Outputs:
        """Chooses one of the second texts `text_pair` [batch, choices] for each of `text` [batch]."""
        choices = tf.shape(text_pair)[1]
        encoded = self._encode(self._pack_texts(tf.repeat(text, choices), tf.reshape(text_pair, [-1])))
        logits = tf.reshape(self.model.multiple_choice(encoded["pooled_output"]), tf.shape(text_pair))
        return {
            "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }

    def label_tokens(self, text: tf.Tensor) -> Outputs:
        """Labels each token of texts [batch]; beside `labels` and `scores` [batch, seq] stands what `tokenize` returns.

        The label of special tokens and of padding is empty, and its score 0.
        """
        tokenized = self.tokenizer.tokenize_with_offsets(text)
        packing = self._plan(tokenized.ids)
        inputs = self._inputs(packing, tokenized.ids)
        logits = self.model.token_classification(self._encode(inputs)["sequence_output"])
        is_text = self._is_text(inputs)
        return {
            "labels": tf.where(is_text, tf.gather(self._labels, tf.argmax(logits, axis=2)), ""),
            "scores": tf.where(is_text, tf.reduce_max(tf.nn.softmax(logits), axis=2), 0.0),
            **self._token_table(tokenized, packing),
        }

    def answer_question(self, text: tf.Tensor, text_pair: tf.Tensor) -> Outputs:
        """Answers questions `text` [batch] from contexts `text_pair` [batch] with the likeliest span of the context.

        The answer is a part of `normalized_text_pair`, from character `answer_start` to `answer_end`, which is
        excluded; `score` is its probability. A head that knows questions without answer gives their probability too.
        """
        question, context = self.tokenizer.tokenize(text), self.tokenizer.tokenize_with_offsets(text_pair)
        packing = self._plan(question, context.ids)
        inputs = self._inputs(packing, question, context.ids)
        sequence = self._encode(inputs)["sequence_output"]
        is_context = self._is_text(inputs) & (inputs["segment_ids"] > 0)
        outputs: Outputs = {}
        if self.model.question_answering is not None:
            logits = self.model.question_answering(sequence)
            span = best_span(logits[:, :, 0], logits[:, :, 1], is_context)
        else:
            may_answer = is_context | (packing.positions == 0)  # [CLS] stands for no answer
            found = self.model.question_answering_v2(sequence, tf.cast(~may_answer, tf.int32))
            span = best_scored_span(found, is_context)
            outputs["no_answer_probability"] = tf.sigmoid(found["answer_class_logits"])
        starts, ends = (
            packing.place(tf.zeros_like(question.flat_values), offsets.flat_values, cls=0, sep=0, pad=0)
            for offsets in (context.starts, context.ends)
        )
        start, end = tf.gather(starts, span.start, batch_dims=1), tf.gather(ends, span.end, batch_dims=1)
        return {
            **outputs,
            "answer": tf.strings.substr(context.text, start, end - start, unit="UTF8_CHAR"),
            "answer_start": start,
            "answer_end": end,
            "score": span.score,
            "normalized_text_pair": context.text,
        }

    def _token_table(self, tokenized: TokenizedText, packing: Packing) -> Outputs:
        """Describes the tokens of one text as they are packed."""
        nothing = tf.constant([], tf.int32)
        starts, ends = (
            packing.place(offsets.flat_values, nothing, cls=0, sep=0, pad=0)
            for offsets in (tokenized.starts, tokenized.ends)
        )
        ids = packing.place(tokenized.ids.flat_values, nothing, **self._special_ids)
        return {
            "input_ids": ids,
            "lengths": packing.lengths,
            "pieces": tf.gather(self._pieces, ids),
            "starts": starts,
            "ends": ends,
            "normalized_text": tokenized.text,
        }

    def _pack_texts(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
        first = self.tokenizer.tokenize(text)
        second = None if text_pair is None else self.tokenizer.tokenize(text_pair)
        return self._inputs(self._plan(first, second), first, second)

    def _plan(self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> Packing:
        if second is None:
            second = tf.RaggedTensor.from_row_lengths(tf.constant([], tf.int32), tf.zeros_like(first.row_lengths()))
        return plan_packing(first, second, max_seq_length=self._max_seq_length)

    def _inputs(self, packing: Packing, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> Outputs:
        """Returns the encoder's inputs for the ids of one text or two [batch, (tokens)]."""
        second_ids = tf.constant([], tf.int32) if second is None else second.flat_values
        return {
            "input_ids": packing.place(first.flat_values, second_ids, **self._special_ids),
            "input_mask": packing.input_mask,
            "segment_ids": packing.segment_ids,
        }

    def _is_text(self, inputs: Outputs) -> tf.Tensor:
        """Returns bool [batch, seq]: neither padding nor a special token."""
        ids = inputs["input_ids"]
        return (inputs["input_mask"] > 0) & (ids != self._special_ids["cls"]) & (ids != self._special_ids["sep"])

    def _embeddings_of(self, encoded: Outputs, inputs: Outputs) -> Outputs:
        """Returns embeddings, float32 [batch, hidden] each; the pooled one where there is a pooler."""
        sequence = tf.cast(encoded["sequence_output"], tf.float32)
        weights = tf.cast(self._is_text(inputs), tf.float32)[:, :, None]
        embeddings = {
            # Over the tokens without [CLS] and [SEP]; zeros for an empty text.
            "mean_embedding": tf.math.divide_no_nan(
                tf.reduce_sum(sequence * weights, axis=1), tf.reduce_sum(weights, axis=1)
            ),
            "cls_embedding": sequence[:, 0],
        }
        if self.model.has_pooler:
            embeddings["pooled_embedding"] = tf.cast(encoded["pooled_output"], tf.float32)
        return embeddings
