"""From a checkpoint to a SavedModel that TensorFlow Serving runs on plain text."""
