"""The graph of an export: read from its file, and loaded as a server loads it."""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.errors import UserError, first_line
from albert_tf.saved_model import session_loader


def load_saved_model(directory: Path) -> session_loader.SessionModel:
    """Loads a version directory as a server does; raises UserError where it is damaged."""
    read_meta_graph(directory)
    try:
        return session_loader.SessionModel(directory)
    except (tf.errors.OpError, OSError, ValueError) as error:
        reason = first_line(error).removeprefix("Graph execution error:") or "its variables cannot be read"
        raise UserError(f"{directory} is damaged: it does not load ({reason}); export it again") from None


def read_meta_graph(directory: Path) -> Any:
    """Returns the graph that is served, a MetaGraphDef message; raises UserError where there is not exactly one."""
    file = directory / "saved_model.pb"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except OSError as error:
        raise UserError(f"{directory} is not a SavedModel: {file.name} cannot be read ({error.strerror})") from None
    except Exception as error:  # protobuf's DecodeError moved between versions
        raise UserError(f"{directory} is not a SavedModel: {file.name} is damaged ({error})") from None
    served = [graph for graph in saved_model.meta_graphs if "serve" in graph.meta_info_def.tags]
    if len(served) != 1:
        raise UserError(f"{directory} must hold one graph with the tag 'serve'; it holds {len(served)}")
    return served[0]
