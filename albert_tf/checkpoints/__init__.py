"""Files to weights and back: native, TF1 and Hugging Face checkpoints."""
