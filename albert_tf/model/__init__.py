"""ALBERT as Keras 3 layers."""
