"""The one training loop, and what any run needs."""
