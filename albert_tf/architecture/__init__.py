"""What a model is, as data: its configuration, which layers share weights, the names of weights, its costs."""
