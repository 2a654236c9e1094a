"""Records of pre-training: their contract, framing and manifest, masks, and keyed random numbers."""
