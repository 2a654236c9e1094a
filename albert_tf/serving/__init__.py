"""The local server with TensorFlow Serving's APIs."""
