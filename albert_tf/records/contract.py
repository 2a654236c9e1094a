"""The record contract: the features of a pre-training example and their tf.train.Example encoding.

Feature names, dtypes and shapes are those of TF1 create_pretraining_data.py, written here once and used by the writer
and by the parser. Nothing here needs TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from albert_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class RecordFeature:
    """One feature: its dtype and which setting gives its length (`None`: one value)."""

    name: str
    dtype: Literal["int64", "float32"]
    length: Literal["max_seq_length", "max_predictions_per_seq"] | None


RECORD_FEATURES = (
    RecordFeature("input_ids", "int64", "max_seq_length"),
    RecordFeature("input_mask", "int64", "max_seq_length"),
    RecordFeature("segment_ids", "int64", "max_seq_length"),
    RecordFeature("token_boundary", "int64", "max_seq_length"),
    RecordFeature("masked_lm_positions", "int64", "max_predictions_per_seq"),
    RecordFeature("masked_lm_ids", "int64", "max_predictions_per_seq"),
    RecordFeature("masked_lm_weights", "float32", "max_predictions_per_seq"),
    RecordFeature("next_sentence_labels", "int64", None),  # 0: in order, 1: swapped (or, for NSP, a random B)
)

# Of records for dynamic masking, which draws the masks anew in every epoch.
UNMASKED_FEATURES = tuple(feature for feature in RECORD_FEATURES if feature.length != "max_predictions_per_seq")

_EXAMPLE_MESSAGES = {
    "Int64List": [(1, "value", "repeated int64")],
    "FloatList": [(1, "value", "repeated float")],
    "Feature": [(2, "float_list", "FloatList"), (3, "int64_list", "Int64List")],
    "Entry": [(1, "key", "string"), (2, "value", "Feature")],
    "Features": [(1, "feature", "repeated Entry")],
    "Example": [(1, "features", "Features")],
}
_FIELD_1, _FIELD_2 = b"\x0a", b"\x12"  # length-delimited protobuf fields
_LIST_FIELD = {"float32": b"\x12", "int64": b"\x1a"}  # Feature.float_list, Feature.int64_list


def encode_examples(
    batch: Mapping[str, np.ndarray], features: Sequence[RecordFeature] = RECORD_FEATURES
) -> list[bytes]:
    """Returns N serialized tf.train.Example from arrays [N, length] (or [N]) that have the names of `features`.

    Integers must be non-negative.
    """
    columns: list[list[bytes]] = []
    fixed: list[np.ndarray] = []  # neighbouring features whose bytes have one length in all examples
    for feature in features:
        values = batch[feature.name].reshape(len(batch[feature.name]), -1)
        if feature.dtype == "float32":
            fixed.append(_with_header(feature, values.astype("<f4").view(np.uint8)))
        elif values.max(initial=0) < 128:
            fixed.append(_with_header(feature, values.astype(np.uint8)))
        else:
            columns += [_rows(fixed), _varint_features(feature, values)]
            fixed = []
    columns.append(_rows(fixed))
    bodies = [b"".join(parts) for parts in zip(*filter(None, columns), strict=True)]
    return [_FIELD_1 + _varint(len(body)) + body for body in bodies]


def decode_example(record: bytes) -> dict[str, np.ndarray]:
    """Returns the features of a serialized tf.train.Example; bytes that are none raise UserError."""
    example = _example_class()()
    try:
        example.ParseFromString(record)
    except DecodeError:
        raise UserError("a record is not a tf.train.Example") from None
    features = {}
    for entry in example.features.feature:
        values = entry.value
        integers = np.array(values.int64_list.value, np.int64)
        features[entry.key] = integers if len(integers) else np.array(values.float_list.value, np.float32)
    return features


@functools.cache
def _example_class() -> Any:
    """Returns the class of tf.train.Example (tensorflow/core/example/example.proto), without TensorFlow."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="records", syntax="proto3")
    kinds = {"int64": "TYPE_INT64", "float": "TYPE_FLOAT", "bytes": "TYPE_BYTES", "string": "TYPE_STRING"}
    for message, fields in _EXAMPLE_MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for number, name, kind in fields:
            label = "LABEL_REPEATED" if kind.startswith("repeated ") else "LABEL_OPTIONAL"
            kind = kind.removeprefix("repeated ")
            typed = (
                {"type": kinds[kind]} if kind in kinds else {"type": "TYPE_MESSAGE", "type_name": f".records.{kind}"}
            )
            descriptor.field.add(name=name, number=number, label=label, **typed)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("records.Example"))


@functools.lru_cache
def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@functools.lru_cache
def _feature_header(feature: RecordFeature, payload_size: int) -> bytes:
    """Returns all bytes of a feature's map entry that stand before its packed values."""
    name = feature.name.encode()
    values = _FIELD_1 + _varint(payload_size)
    typed_list = _LIST_FIELD[feature.dtype] + _varint(len(values) + payload_size) + values
    entry = _FIELD_1 + _varint(len(name)) + name + _FIELD_2 + _varint(len(typed_list) + payload_size) + typed_list
    return _FIELD_1 + _varint(len(entry) + payload_size) + entry


def _with_header(feature: RecordFeature, payloads: np.ndarray) -> np.ndarray:
    """Returns bytes [N, header + payload] from the payloads [N, payload]."""
    header = np.frombuffer(_feature_header(feature, payloads.shape[1]), np.uint8)
    return np.concatenate([np.broadcast_to(header, (len(payloads), len(header))), payloads], axis=1)


def _rows(blocks: list[np.ndarray]) -> list[bytes]:
    """Returns the rows of byte arrays that stand side by side."""
    if not blocks:
        return []
    block = np.concatenate(blocks, axis=1)
    data, width = block.tobytes(), block.shape[1]
    return [data[begin : begin + width] for begin in range(0, len(data), width)]


def _varint_features(feature: RecordFeature, values: np.ndarray) -> list[bytes]:
    """Returns the feature of each example, from integers [N, length] that take one to several bytes."""
    data, sizes = _packed_varints(values)
    ends = np.cumsum(sizes).tolist()
    headers = {size: _feature_header(feature, size) for size in set(sizes.tolist())}
    return [headers[e - b] + data[b:e] for b, e in zip([0, *ends], ends, strict=False)]


def _packed_varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Returns the varints of integers [N, length], row after row, and how many bytes each row takes."""
    largest = int(values.max(initial=0))
    # All bytes of a number stand in one word, the lowest first, so that a whole array is encoded by a few shifts.
    word = np.dtype("<u4" if largest < 2**28 else "<u8")
    values = values.astype(word)
    encoded, present = values & word.type(127), np.ones(values.shape, word)
    sizes = np.full(len(values), values.shape[1])
    for byte in range(1, (largest.bit_length() + 6) // 7):
        rest = values >> word.type(7 * byte)
        more = rest > 0
        sizes += np.count_nonzero(more, axis=1)
        more = more.astype(word)
        encoded |= (rest & word.type(127)) << word.type(8 * byte) | more << word.type(8 * byte - 1)
        present |= more << word.type(8 * byte)
    data = np.compress(present.reshape(-1).view(bool), encoded.reshape(-1).view(np.uint8))  # indexing is slower
    return data.tobytes(), sizes


PAIR_TASKS = ("sop", "nsp", "none")
