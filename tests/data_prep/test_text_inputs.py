import bz2
import gzip
import json
import lzma
import random

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from backports import zstd

from albert_tf.errors import UserError
from albert_tf.settings.data_preparation import TextConfig
from albert_tf_data_prep import text_inputs
from albert_tf_data_prep.text_inputs import FileSource, ReadCounts, open_sources

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def read(counts=None, **flags):
    """Returns every line of every source."""
    config = TextConfig(output_dir="", **flags)
    counts = counts or ReadCounts()
    return [line for source in open_sources(config) for _, line in source.lines(config, counts)]


def write(tmp_path, content, name="text.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def words(count, seed=1):
    """Returns text that compresses as text does."""
    generator = random.Random(seed)
    return "\n".join(" ".join(f"w{generator.randrange(500)}" for _ in range(12)) for _ in range(count))


def test_lines_are_stripped_and_a_file_ends_a_text(tmp_path):
    path = write(tmp_path, "\ufeffone \r\n\n two\n")
    assert read(input_file=str(path)) == ["one", "", "two", None]


def test_empty_files_among_full_ones(tmp_path):
    for name, content in [("a", "one\n"), ("b", ""), ("c", "\n\n"), ("d", "two")]:
        write(tmp_path, content, name)
    assert read(input_file=f"{tmp_path}/*") == ["one", None, None, "", "", None, "two", None]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_read_as_plain_ones(tmp_path, suffix):
    text = words(3000)
    half = len(text) // 2
    parts = COMPRESS[suffix](text[:half].encode()) + COMPRESS[suffix](text[half:].encode())  # as `cat` joins files
    counts = ReadCounts()
    path = write(tmp_path, parts, f"text.txt{suffix}")
    assert read(counts, input_file=str(path))[:-1] == text.split("\n")
    assert (counts.input_bytes, counts.text_bytes) == (path.stat().st_size, len(text))


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no such thing\n" * 9], ids=["cut", "other"])
def test_damaged_compressed_files_are_refused_with_their_place(tmp_path, suffix, damage):
    path = write(tmp_path, damage(COMPRESS[suffix](words(50).encode())), f"text{suffix}")
    with pytest.raises(UserError, match=rf"text\{suffix}:\d+: the compressed file is damaged"):
        read(input_file=str(path))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_grows_as_no_text_does_is_refused(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(text_inputs, "EXPANSION_ALLOWANCE_BYTES", 2**20)
    path = write(tmp_path, COMPRESS[suffix](b"\n".join([b"a" * 1000] * 3000)), f"bomb{suffix}")
    with pytest.raises(UserError, match=rf"bomb\{suffix}:\d+: .* grew to more than 200 times"):
        read(input_file=str(path))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_inputs, "MAX_LINE_BYTES", 1000)
    with pytest.raises(UserError, match="text.txt:2: a line may have at most 1,000 bytes"):
        read(input_file=str(write(tmp_path, "short\n" + "x" * 2000)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nbad \xff byte\n", r"text.txt:2: text must be UTF-8; .*0xff at byte 5"),
        (b"fine\n\nnul \x00 here\n", r"text.txt:3: .*NUL character"),
        ("text".encode("utf-16"), r"text.txt:1: .*not UTF-8"),
    ],
)
def test_invalid_bytes_are_refused_with_their_place(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read(input_file=str(write(tmp_path, content)))


def test_invalid_bytes_can_be_replaced_and_are_counted(tmp_path):
    counts = ReadCounts()
    path = write(tmp_path, b"bad \xff byte\nfine\nnul \x00\n")
    lines = read(counts, input_file=str(path), invalid_bytes="replace")
    assert lines == ["bad \ufffd byte", "fine", "nul \ufffd", None]
    assert counts.lines_with_invalid_bytes == 2


def test_json_lines_are_texts_of_their_own(tmp_path):
    rows = [{"text": "one\n\ntwo", "id": 1}, {"body": "x", "text": "  drei\u00e4\U0001f600 "}]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", "rows.jsonl")
    assert read(input_file=str(path), text_key="text") == ["one", "", "two", None, "drei\u00e4\U0001f600", None, None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "this one is not JSON"),
        ("[" * 100_000, "this one is not JSON"),
        ('["a"]', "must be an object; this one is list"),
        ('{"txt": "a"}', "the object has no 'text', which --text_key names; did you mean 'txt'"),
        ('{"text": null}', "'text' must be a text; it is NoneType"),
        ('{"text": "\\ud800 alone"}', "half a surrogate pair"),
        ('{"text": "a\\u0000b"}', "NUL character"),
    ],
    ids=range(7),
)
def test_json_errors_name_file_and_line(tmp_path, line, message):
    path = write(tmp_path, '{"text": "fine"}\n' + line + "\n", "rows.jsonl")
    with pytest.raises(UserError, match=rf"rows.jsonl:2: .*{message}"):
        read(input_file=str(path), text_key="text")


def test_lone_surrogates_can_be_replaced(tmp_path):
    counts = ReadCounts()
    path = write(tmp_path, '{"text": "\\ud800 alone, \\ud83d\\ude00 together"}\n')
    lines = read(counts, input_file=str(path), text_key="text", invalid_bytes="replace")
    assert lines[0] == "\ufffd alone, \U0001f600 together" and counts.lines_with_invalid_bytes == 1


@pytest.mark.parametrize("compressed", [False, True])
def test_paths_with_a_scheme_are_read_through_tensorflow(compressed):
    data = gzip.compress(b"one\ntwo\n") if compressed else b"one\ntwo\n"
    name = f"ram://inputs/{compressed}/text.txt" + ".gz" * compressed
    with tf.io.gfile.GFile(name, "wb") as stream:
        stream.write(data)
    assert read(input_file=f"ram://inputs/{compressed}/*") == ["one", "two", None]
    (source,) = open_sources(TextConfig(input_file=name, output_dir=""))
    assert source.identity()["bytes"] == len(data)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("ram://nowhere/*", "matches no file"), ("nosuch://a/*", "cannot be read: .*nosuch"), (" , ", "at least one")],
)
def test_inputs_that_are_nowhere_are_refused(pattern, message):
    with pytest.raises(UserError, match=message):
        open_sources(TextConfig(input_file=pattern, output_dir=""))


def test_local_and_remote_files_mix(tmp_path):
    path = write(tmp_path, "here\n")
    with tf.io.gfile.GFile("ram://mixed/text.txt", "wb") as stream:
        stream.write(b"there\n")
    assert read(input_file=f"{path}, ram://mixed/text.txt") == ["here", None, "there", None]


def test_an_identity_follows_the_content(tmp_path):
    paths = [write(tmp_path, content, name) for name, content in [("a", "one"), ("b", "one"), ("c", "two")]]
    checksums = [open_sources(TextConfig(input_file=str(p), output_dir=""))[0].identity()["crc32c"] for p in paths]
    assert checksums[0] == checksums[1] != checksums[2]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A data directory as TFDS writes it, with a data set of ten texts in two files."""
    data_dir = tmp_path_factory.mktemp("tfds")
    directory = data_dir / "tiny" / "1.0.0"
    directory.mkdir(parents=True)
    features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "number": tf.int64})
    for shard in range(2):
        with tf.io.TFRecordWriter(str(directory / f"tiny-train.tfrecord-{shard:05d}-of-00002")) as writer:
            for number in range(5 * shard, 5 * shard + 5):
                writer.write(features.serialize_example({"text": f"Text {number}.\n\nMore.", "number": number}))
    template = tfds.core.ShardedFileTemplate(
        data_dir=directory, dataset_name="tiny", split="train", filetype_suffix="tfrecord"
    )
    split = tfds.core.SplitInfo(name="train", shard_lengths=[5, 5], num_bytes=0, filename_template=template)
    tfds.folder_dataset.write_metadata(data_dir=str(directory), features=features, split_infos=[split])
    return str(data_dir)


@pytest.mark.parametrize(("split", "numbers"), [("train", range(10)), ("train[:60%]", range(6))])
def test_a_tfds_data_set_is_read_in_order(dataset, split, numbers):
    counts = ReadCounts()
    lines = read(counts, tfds_name="tiny", tfds_split=split, tfds_data_dir=dataset)
    assert lines == [line for number in numbers for line in (f"Text {number}.", "", "More.", None)]
    assert counts.input_bytes == sum(s.size_bytes for s in open_sources(
        TextConfig(tfds_name="tiny", tfds_split=split, tfds_data_dir=dataset, output_dir="")))  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tfds_name": "no_such_name"}, "--tfds_name=no_such_name --tfds_split=train: .*not found"),
        ({"tfds_split": "tset"}, "--tfds_split=tset: Unknown split"),
        ({"text_key": "txet"}, "--text_key='txet' is not a feature of tiny; did you mean 'text'"),
        ({"text_key": "number"}, "tiny, split train: example 1: .*must be a text"),
    ],
)
def test_mistakes_with_tfds_are_explained(dataset, flags, message):
    with pytest.raises(UserError, match=message):
        read(**{"tfds_name": "tiny", "tfds_data_dir": dataset, **flags})


@pytest.mark.parametrize("flags", [{}, {"input_file": "a", "tfds_name": "b"}])
def test_one_kind_of_input_must_be_given(flags):
    with pytest.raises(UserError, match="one of --input_file and --tfds_name must be given"):
        TextConfig(output_dir="", **flags)


def test_json_lines_need_the_key_of_their_text(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(b"")
    with pytest.raises(UserError, match="a.jsonl.gz holds JSON lines by its name: --text_key must name"):
        open_sources(TextConfig(output_dir="", input_file=str(tmp_path / "a.jsonl.gz")))


def test_a_disk_that_fails_is_told_with_the_file():
    with pytest.raises(OSError) as caught:
        FileSource("/proc/self/mem").identity()
    assert caught.value.filename == "/proc/self/mem"
