import numpy as np
import pytest
from commands import run


def test_several_threads_may_ask_at_once(session_model):
    from concurrent.futures import ThreadPoolExecutor

    texts = [f"Alice {number}" for number in range(16)]
    alone = [session_model.run("embeddings", {"text": np.array([text])}) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: session_model.run("embeddings", {"text": np.array([text])}), texts))
    for a, b in zip(alone, together, strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in a)


def test_signatures_are_those_of_the_saved_model(session_model):
    assert "serving_default" in session_model.signatures
    assert not any(name.startswith("__") for name in session_model.signatures)
    with pytest.raises(KeyError):
        session_model.run("no_such_signature", {})


def test_neither_keras_nor_tensorflow_text_is_imported():
    """A server has neither; a check that imported them could pass where a server fails."""
    program = (
        "import sys; sys.modules['keras'] = None; from albert_tf.saved_model import session_loader; "
        "session_loader._load_text_operations(); print('tensorflow_text' in sys.modules)"
    )
    process = run("-c", program)
    assert process.stdout.strip() == "False", process.stderr
