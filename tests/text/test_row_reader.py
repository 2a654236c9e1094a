import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import UserError
from albert_tf.text.row_reader import RowReader


def reader(path, **flags):
    return RowReader(path, **flags)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def contents(rows):
    return [(row.line, row.text, row.pair, row.problem) for row in rows]


def test_each_format_gives_the_same_texts(tmp_path):
    texts = [("Alice, said", 'the "Rabbit"'), ("über\u2028all", "2,500")]
    quoted = [[part.replace('"', '""') for part in pair] for pair in texts]
    files = {
        "t.tsv": "n\tb\ta\n" + "".join(f"{n}\t{b}\t{a}\n" for n, (a, b) in enumerate(texts)),
        "t.csv": "a,n,b\r\n" + "".join(f'"{a}",{n},"{b}"\r\n' for n, (a, b) in enumerate(quoted)),
        "t.jsonl": "".join(json.dumps({"a": a, "b": b, "n": 1}) + "\n" for a, b in texts),
    }
    for name, content in files.items():
        rows = list(reader(write(tmp_path / name, content), text_column="a", pair_column="b").rows())
        assert [(row.text, row.pair) for row in rows] == texts, name
    lines = write(tmp_path / "t.txt", "".join(a + "\n" for a, _ in texts).removesuffix("\n"))
    assert [row.text for row in reader(lines).rows()] == [a for a, _ in texts]


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_text(tmp_path):
    path = write(tmp_path / "t.tsv", b"\xef\xbb\xbftext\r\nAlice\r\n")
    assert contents(reader(path).rows()) == [(2, "Alice", None, None)]


def test_a_field_of_csv_may_hold_lines(tmp_path):
    path = write(tmp_path / "t.csv", 'text,n\n"down\ndown",1\nend,2\n')
    assert contents(reader(path).rows()) == [(2, "down\ndown", None, None), (4, "end", None, None)]


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        ("t.txt", b"", "it is empty"),
        ("t.txt", b"  ", "it is empty"),
        ("t.txt", b"caf\xe9 noir", "not UTF-8 (invalid continuation byte at byte 3"),
        ("t.tsv", b"a", "1 fields, and the header has 2"),
        ("t.tsv", b"a\tb\tc", "3 fields, and the header has 2"),
        ("t.tsv", b"", "it is empty"),
        ("t.tsv", b" \tb", "its text is empty"),
        ("t.csv", b'"a"b,c', "not CSV: ',' expected after '\"'"),
        ("t.jsonl", b"{", "not JSON: Expecting property name"),
        ("t.jsonl", b"[1]", "a JSON object is expected, not list"),
        ("t.jsonl", b'{"tex": "a"}', "'text' must be a string: there is no 'text'; did you mean 'tex'?"),
        ("t.jsonl", b'{"text": 3}', "'text' must be a string: it is not a string"),
        ("t.jsonl", b"", "it is empty"),
        ("t.csv", b'"broken,1', "not CSV: unexpected end of data"),
        ("t.csv", b"caf\xe9,1", "not UTF-8"),
        ("t.jsonl", b'{"text": "a", "n": ' + b"1" * 5_000 + b"}", "not JSON: Exceeds the limit"),
        ("t.txt", b"a" * (2**24 + 1), "longer than 16,777,216 bytes"),
    ],
)
def test_bad_rows_are_told_and_do_not_hide_the_next(tmp_path, name, line, problem):
    good = {"t.txt": b"good", "t.jsonl": b'{"text": "good"}'}.get(name, b"good\tb" if name == "t.tsv" else b"good,b")
    header = {"t.tsv": b"text\tb\n", "t.csv": b"text,b\n"}.get(name, b"")
    rows = list(reader(write(tmp_path / name, header + line + b"\n" + good + b"\n")).rows())
    assert [row.line - header.count(b"\n") for row in rows] == [1, 2]
    assert rows[0].problem is not None and rows[0].problem.startswith(problem), rows[0].problem
    assert (rows[1].text, rows[1].problem) == ("good", None)


def test_an_unbalanced_quote_costs_one_line(tmp_path):
    good = [f"good {n},{n}" for n in range(1000)]
    for broken in ('"broken,1', '"broken,1\n"x"y,2', '"broken,1\ncaf\xe9,2'):
        content = "\n".join(["text,n", *good[:500], broken, *good[500:], ""]).encode("latin1")
        rows = list(reader(write(tmp_path / "t.csv", content)).rows())
        lines = [502 + n for n in range(broken.count("\n") + 1)]
        assert [row.line for row in rows if row.problem] == lines
        assert [row.text for row in rows if not row.problem] == [f"good {n}" for n in range(1000)]


def test_headers_are_checked_before_anything_starts(tmp_path):
    with pytest.raises(UserError, match="t.tsv:1: there is no column 'text'; did you mean 'texts'"):
        reader(write(tmp_path / "t.tsv", "texts\n"))
    with pytest.raises(UserError, match="is empty; a csv file begins with"):
        reader(write(tmp_path / "t.csv", ""))
    with pytest.raises(UserError, match="needs columns, and .* is read as plain lines"):
        reader(write(tmp_path / "t.txt", "a\n"), pair_column="b")
    with pytest.raises(UserError, match="absent.txt does not exist"):
        reader(tmp_path / "absent.txt")


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t")), min_size=1),
       st.integers(0, 20))  # fmt: skip
def test_reading_from_the_end_of_any_row_gives_the_rest(tmp_path_factory, texts, place):
    directory = tmp_path_factory.mktemp("rows")
    for name in ("t.txt", "t.csv", "t.jsonl"):
        line = {"t.txt": "{}", "t.csv": '"{}",\n'[:-1], "t.jsonl": "{}"}[name]
        encode = {"t.csv": lambda t: t.replace('"', '""'), "t.jsonl": lambda t: json.dumps({"text": t})}
        body = "".join(line.format(encode.get(name, str)(text)) + "\n" for text in texts)
        source = reader(write(directory / name, ("text,b\n" if name == "t.csv" else "") + body))
        rows = list(source.rows())
        assert len(rows) == len(texts)
        place = min(place, len(rows) - 1)
        assert list(source.rows(rows[place].end)) == rows[place + 1 :]
