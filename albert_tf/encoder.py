"""The name under which users of `.keras` files import the encoder; it registers the layers with Keras."""

from albert_tf.model.encoder import AlbertEncoder

__all__ = ["AlbertEncoder"]
