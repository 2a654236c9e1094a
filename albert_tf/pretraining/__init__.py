"""From records to a pre-trained model."""
