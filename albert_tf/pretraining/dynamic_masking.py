"""Masks that are drawn while training, by the rules of `masking`, for records that hold none."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.records.contract import RECORD_FEATURES, UNMASKED_FEATURES
from albert_tf.records.keyed_random import derive_key, derive_keys
from albert_tf.records.manifest import RecordsDirectory
from albert_tf.records.masking import MaskingSettings, mask_examples

_STREAM = 201  # of random numbers

_Batch = dict[str, tf.Tensor]


class DynamicMasking:
    """Draws the masks of whole batches. They are a function of the seed and of an example's number in the run."""

    def __init__(self, directory: RecordsDirectory) -> None:
        self._tokenizer = directory.load_tokenizer()
        self._settings = MaskingSettings.of(directory.manifest.settings)

    @classmethod
    def of(cls, directory: RecordsDirectory | None) -> "DynamicMasking | None":
        """Returns what masks the records of a directory; None where they hold masks of their own."""
        if directory is None or directory.manifest.settings["masking"] == "static":
            return None
        return cls(directory)

    def masker(self, seed: int) -> Callable[[tf.Tensor, _Batch], _Batch]:
        """Returns a function of the int64 number of a batch's first example, and the batch, for `Dataset.map`."""
        base = np.array(derive_key(seed, _STREAM))

        def draw(first: np.ndarray, input_ids: np.ndarray, input_mask: np.ndarray) -> tuple[np.ndarray, ...]:
            masked = mask_examples(
                input_ids,
                input_mask.sum(axis=1),
                keys=derive_keys(base, first + np.arange(len(input_ids))),
                tokenizer=self._tokenizer,
                settings=self._settings,
            )
            return masked.input_ids, masked.masked_lm_positions, masked.masked_lm_ids, masked.masked_lm_weights

        def mask(first: tf.Tensor, batch: _Batch) -> _Batch:
            input_ids, *targets = tf.numpy_function(
                draw,
                [first, batch["input_ids"], batch["input_mask"]],
                [tf.int32, tf.int32, tf.int32, tf.float32],
                stateful=False,
            )
            shape = [batch["input_ids"].shape[0], self._settings.max_predictions_per_seq]
            names = [feature.name for feature in RECORD_FEATURES if feature not in UNMASKED_FEATURES]
            drawn = {name: tf.ensure_shape(tensor, shape) for name, tensor in zip(names, targets, strict=True)}
            return {**batch, "input_ids": tf.ensure_shape(input_ids, batch["input_ids"].shape), **drawn}

        return mask
