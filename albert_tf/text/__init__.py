"""Text to ids and back: normalisation, tokenizers and their files, packing, readers of rows of text."""
