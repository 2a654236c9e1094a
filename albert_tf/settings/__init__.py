"""What the commands can be told: frozen dataclasses whose fields become flags."""
