"""Token ids of one text, or of two, to the model's inputs, with operations of TensorFlow's core only.

Ids are placed by gathering: output position p of a row shows [CLS], a token of the first text, [SEP], a token of the
second, [SEP] or padding. A batch is as long as its longest row, rounded up to a bucket, so that a server meets few
different shapes; an empty batch is a batch.
"""

import dataclasses

import tensorflow as tf

LENGTH_BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # padding is at most half of a row's tokens from 16 on

_SPECIAL_TOKENS_OF_TWO = 3  # [CLS] first [SEP] second [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """Where the tokens of `first` and `second` stand in a padded batch [batch, length].

    `first_lengths` and `second_lengths` int32 [batch] are what truncation has left of them.
    """

    first_starts: tf.Tensor
    second_starts: tf.Tensor
    first_lengths: tf.Tensor
    second_lengths: tf.Tensor
    lengths: tf.Tensor  # int32 [batch]; special tokens are counted
    positions: tf.Tensor  # int32 [1, length]

    @property
    def input_mask(self) -> tf.Tensor:
        """Int32 [batch, length]: 1 for tokens, 0 for padding."""
        return tf.cast(self.positions < self.lengths[:, None], tf.int32)

    @property
    def segment_ids(self) -> tf.Tensor:
        """Int32 [batch, length]: 1 for the second text and its [SEP], 0 elsewhere."""
        in_second = self.positions >= self.first_lengths[:, None] + 2
        return tf.cast(in_second, tf.int32) * self.input_mask

    def place(self, first: tf.Tensor, second: tf.Tensor, *, cls: int, sep: int, pad: int) -> tf.Tensor:
        """Lays out the flat values of both texts' tokens [batch, length], with these values for the special tokens."""
        first_end = self.first_lengths[:, None] + 1
        tokens = tf.where(
            self.positions < first_end,
            _gather_rows(first, self.first_starts, self.positions - 1),
            _gather_rows(second, self.second_starts, self.positions - first_end - 1),
        )
        last = self.lengths[:, None] - 1
        placed = tf.where((self.positions == first_end) | (self.positions == last), sep, tokens)
        placed = tf.where(self.positions == 0, cls, placed)
        return tf.where(self.positions > last, pad, placed)


def plan_packing(first: tf.RaggedTensor, second: tf.RaggedTensor, *, max_seq_length: int) -> Packing:
    """Plans the layout of the rows of two int32 [batch, (tokens)]; a row whose second text is empty has only one [SEP].

    Where a row is too long the longer text loses its last token, again and again (TF1 classifier_utils.py,
    _truncate_seq_pair).
    """
    first_lengths = tf.cast(first.row_lengths(), tf.int32)
    second_lengths = tf.cast(second.row_lengths(), tf.int32)
    room = tf.where(second_lengths > 0, max_seq_length - _SPECIAL_TOKENS_OF_TWO, max_seq_length - 2)
    kept_first = tf.minimum(first_lengths, tf.maximum(room - second_lengths, (room + 1) // 2))
    kept_second = tf.minimum(second_lengths, room - kept_first)
    lengths = kept_first + kept_second + tf.where(second_lengths > 0, 3, 2)
    return Packing(
        first_starts=tf.cast(first.row_starts(), tf.int32),
        second_starts=tf.cast(second.row_starts(), tf.int32),
        first_lengths=kept_first,
        second_lengths=kept_second,
        lengths=lengths,
        positions=tf.range(bucket_length(lengths, max_seq_length=max_seq_length))[None],
    )


def bucket_length(lengths: tf.Tensor, *, max_seq_length: int) -> tf.Tensor:
    """Returns the smallest bucket that holds `lengths` int32 [batch]; the largest bucket is `max_seq_length`."""
    buckets = tf.constant([*(bucket for bucket in LENGTH_BUCKETS if bucket < max_seq_length), max_seq_length])
    longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
    return tf.gather(buckets, tf.searchsorted(buckets, longest[None]))[0]


def _gather_rows(values: tf.Tensor, starts: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns values[starts + columns] [batch, length]; places outside of `values` show an arbitrary value."""
    values = tf.concat([values, tf.zeros([1], values.dtype)], axis=0)
    return tf.gather(values, tf.clip_by_value(starts[:, None] + columns, 0, tf.size(values) - 1))
