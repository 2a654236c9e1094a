import pytest
from conftest import ROOT

from albert_tf.architecture import costs
from albert_tf.architecture.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.training import host_memory

GIB = 2**30


def estimate_of(name, *, length, bytes_per_value=4):
    config = AlbertConfig.load(ROOT / "configs" / f"albert_{name}.json")
    return lambda batch_size: costs.estimate_training_bytes(
        config,
        batch_size=batch_size,
        max_seq_length=length,
        max_predictions_per_seq=77,
        bytes_per_value=bytes_per_value,
    )


def test_the_published_batch_is_refused_on_a_laptop(monkeypatch):
    monkeypatch.setattr(host_memory, "available_host_bytes", lambda: 16 * GIB)
    with pytest.raises(UserError, match=r"needs at least .* GiB .* has 16.0 GiB available. At most \d+ may fit"):
        host_memory.check_host_memory(estimate_of("base", length=512), batch_size=4096)


def test_what_a_laptop_can_train_is_not_refused(monkeypatch):
    monkeypatch.setattr(host_memory, "available_host_bytes", lambda: 8 * GIB)
    host_memory.check_host_memory(estimate_of("base", length=128), batch_size=16)
    host_memory.check_host_memory(estimate_of("tiny", length=128), batch_size=64)


def test_a_model_that_never_fits_is_said_so(monkeypatch):
    monkeypatch.setattr(host_memory, "available_host_bytes", lambda: 3 * GIB)
    with pytest.raises(UserError, match="Not even one example fits"):
        host_memory.check_host_memory(estimate_of("xxlarge", length=512), batch_size=1)


def test_this_machines_memory_is_known():
    assert host_memory.available_host_bytes() > 0
