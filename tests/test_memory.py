import checks
import pytest
from conftest import ROOT

from albert_tf import memory
from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import UserError

GIB = 2**30


def estimate_of(name, *, length, bytes_per_value=4):
    config = AlbertConfig.load(ROOT / "configs" / f"albert_{name}.json")
    return lambda batch_size: memory.estimate_training_bytes(
        config,
        batch_size=batch_size,
        max_seq_length=length,
        max_predictions_per_seq=77,
        bytes_per_value=bytes_per_value,
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"embedding_size": 16}, {"parameter_sharing": "ffn"}, {"num_hidden_groups": 2, "inner_group_num": 2}],
    ids=str,
)
def test_weights_are_counted_without_building_the_model(changes):
    config = checks.tiny_config(**changes)
    assert memory.count_weights(config) == AlbertEncoder(config).count_params()


def test_the_published_batch_is_refused_on_a_laptop(monkeypatch):
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 16 * GIB)
    with pytest.raises(UserError, match=r"needs at least .* GiB .* has 16.0 GiB available. At most \d+ may fit"):
        memory.check_host_memory(estimate_of("base", length=512), batch_size=4096)


def test_what_a_laptop_can_train_is_not_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 8 * GIB)
    memory.check_host_memory(estimate_of("base", length=128), batch_size=16)
    memory.check_host_memory(estimate_of("tiny", length=128), batch_size=64)


def test_a_model_that_never_fits_is_said_so(monkeypatch):
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 3 * GIB)
    with pytest.raises(UserError, match="Not even one example fits"):
        memory.check_host_memory(estimate_of("xxlarge", length=512), batch_size=1)


def test_this_machines_memory_is_known():
    assert memory.available_host_bytes() > 0
