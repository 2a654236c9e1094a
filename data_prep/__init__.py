"""Raw text to vocabulary and TFRecords. Imports no TensorFlow, and of albert_tf only what needs none."""
