"""The one place that states the project's version."""

__version__ = "0.1.0"
