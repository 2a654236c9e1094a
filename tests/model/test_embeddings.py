import pytest
import tensorflow as tf

from albert_tf.model import embeddings


def test_more_tokens_than_positions_are_refused():
    embedding = embeddings.FactorizedEmbedding(
        10, embedding_size=4, hidden_size=8, max_position_embeddings=5, type_vocab_size=2, dropout=0.0,
        initializer_range=0.02,
    )  # fmt: skip
    with pytest.raises(ValueError, match="received 6 and 5"):
        embedding(tf.zeros([1, 6], tf.int32), tf.zeros([1, 6], tf.int32))
