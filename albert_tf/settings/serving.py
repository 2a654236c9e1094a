"""What the command serve can be told."""

import dataclasses

from albert_tf.settings.options import option, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Flags of albert_tf.serve."""

    saved_model_dir: str = option("An export, or a directory of numbered ones, of which the highest is served.")
    host: str = option("Address to listen at; the default is for this machine only.", default="127.0.0.1")
    rest_port: int = option("Port of the REST API; 0: any free one.", default=8501)
    port: int = option("Port of the gRPC API; 0: any free one.", default=8500)
    model_name: str = option("Name of the model in requests.", default="albert")
    max_body_bytes: int = option("Longest request.", default=4 * 2**20)
    max_texts: int = option("Most texts, or rows of token ids, in a request.", default=64)
    max_text_bytes: int = option("Longest text.", default=2**17)
    max_queue: int = option("Most requests that wait while others are computed.", default=128)

    def __post_init__(self) -> None:
        for name in ("rest_port", "port"):
            require(self, name, at_least=0, at_most=65535)
        for name in ("max_body_bytes", "max_texts", "max_text_bytes"):
            require(self, name, at_least=1)
        require(self, "max_queue", at_least=0)
