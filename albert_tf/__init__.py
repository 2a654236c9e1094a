"""ALBERT (Lan et al., ICLR 2020) for TensorFlow 2 and Keras 3."""

import importlib
from typing import Any

from albert_tf.version import __version__

# Public name -> module. Loaded on first use, so that `import albert_tf` does not import TensorFlow.
_PUBLIC_NAMES = {
    "AlbertConfig": "config",
    "SentencePieceTokenizer": "tokenizer",
    "WordPieceTokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
    "AlbertEncoder": "encoder",
    "AlbertWithHeads": "heads",
    "TransformerBlock": "layers",
    "load_encoder": "loading",
    "load_model": "loading",
    "open_checkpoint": "loading",
    "pack_texts": "packing",
    "load_engine": "engine",
}

__all__ = ["__version__", *_PUBLIC_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}; it has {', '.join(_PUBLIC_NAMES)}")
    return getattr(importlib.import_module(f"albert_tf.{_PUBLIC_NAMES[name]}"), name)
