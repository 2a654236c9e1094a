"""ALBERT (Lan et al., ICLR 2020) for TensorFlow 2 and Keras 3."""

import importlib
from typing import Any

from albert_tf.version import __version__

# Public name -> module. Loaded on first use, so that `import albert_tf` does not import TensorFlow.
_PUBLIC_NAMES = {
    "AlbertConfig": "architecture.config",
    "SentencePieceTokenizer": "text.sentencepiece_tokenizer",
    "WordPieceTokenizer": "text.wordpiece_tokenizer",
    "load_tokenizer": "text.tokenizer_files",
    "AlbertEncoder": "model.encoder",
    "AlbertWithHeads": "model.heads",
    "TransformerBlock": "model.block",
    "load_encoder": "checkpoints.opening",
    "load_model": "checkpoints.opening",
    "open_checkpoint": "checkpoints.opening",
    "pack_texts": "text.packing",
    "load_engine": "inference.engine",
}

__all__ = ["__version__", *_PUBLIC_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}; it has {', '.join(_PUBLIC_NAMES)}")
    return getattr(importlib.import_module(f"albert_tf.{_PUBLIC_NAMES[name]}"), name)
