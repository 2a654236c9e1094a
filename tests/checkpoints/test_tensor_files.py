import checkpoint_files
import numpy as np
import pytest
from conftest import GOLDEN

from albert_tf.checkpoints.tensor_files import SafetensorsTensors, TensorFlowTensors
from albert_tf.errors import UserError


def test_truncated_files_end_in_a_sentence(tmp_path):
    checkpoint_files.copy_golden("tf1_checkpoint/plain", tmp_path)
    data = tmp_path / "model.ckpt-best.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    tensors = TensorFlowTensors(str(tmp_path / "model.ckpt-best"))
    with pytest.raises(UserError, match="cannot be read"):
        tensors.read("bert/pooler/dense/kernel")
    index = tmp_path / "model.ckpt-best.index"
    index.write_bytes(index.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read"):
        TensorFlowTensors(str(tmp_path / "model.ckpt-best"))
    whole = (GOLDEN / "hf" / "pretraining" / "model.safetensors").read_bytes()
    for length in (3, 500, len(whole) - 1):
        (tmp_path / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(UserError, match="is not a whole safetensors file"):
            SafetensorsTensors([tmp_path / "model.safetensors"])


def test_a_data_file_of_another_checkpoint_is_noticed(tmp_path):
    checkpoint_files.copy_golden("finetune_heads/classifier_mnli", tmp_path)
    checkpoint_files.copy_golden("finetune_heads/race", tmp_path / "race")
    name = "model.ckpt-best.data-00000-of-00001"
    (tmp_path / "race" / name).replace(tmp_path / name)
    tensors = TensorFlowTensors(str(tmp_path / "model.ckpt-best"))
    with pytest.raises(UserError, match="cannot be read"):
        for tensor in tensors.shapes:
            tensors.read(tensor)


def test_values_are_those_of_the_file():
    tensors = TensorFlowTensors(str(GOLDEN / "tf1_checkpoint" / "plain" / "model.ckpt-best"))
    expected = checkpoint_files.read_tf1("tf1_checkpoint/plain")
    assert tensors.shapes == {name: value.shape for name, value in expected.items()}
    assert all(np.array_equal(tensors.read(name), value) for name, value in expected.items())
