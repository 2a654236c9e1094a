import pytest

from albert_tf.settings.data_preparation import RecordsConfig

RECORDS = {"input_file": "a", "output_dir": "b", "spm_model_file": "c"}


@pytest.mark.parametrize(("length", "predictions"), [(512, 77), (128, 19), (64, 10)])
def test_predictions_default_to_what_the_probability_needs(length, predictions):
    assert RecordsConfig(**RECORDS, max_seq_length=length).predictions_per_seq == predictions
    assert RecordsConfig(**RECORDS, max_seq_length=length, max_predictions_per_seq=5).predictions_per_seq == 5
