import pytest

from albert_tf.errors import UserError
from albert_tf.files import (
    differing_keys,
    expand_globs,
    locked_directory,
    read_json,
    require_writable,
    whole_directory,
    whole_file,
    write_json,
)


def test_globs_and_names_are_joined_sorted_and_unique(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).touch()
    found = expand_globs(f"{tmp_path}/*.txt, {tmp_path}/a.txt,{tmp_path}/c.md", flag="--input_file")
    assert [path.name for path in found] == ["a.txt", "b.txt", "c.md"]


def test_a_file_is_taken_once_however_it_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").symlink_to("a.txt")
    assert len(expand_globs(f"*.txt,./a.txt,{tmp_path}/a.txt", flag="--input_file")) == 1


def test_a_name_with_brackets_that_exists_is_not_a_glob(tmp_path):
    (tmp_path / "a[1].txt").touch()
    assert len(expand_globs(f"{tmp_path}/a[1].txt", flag="--input_file")) == 1


@pytest.mark.parametrize(
    ("pattern", "message"), [("", "at least one file"), ("no/*.such", "matches no file"), (".", "is a directory")]
)
def test_patterns_without_a_file_are_refused(pattern, message):
    with pytest.raises(UserError, match=message):
        expand_globs(pattern, flag="--input_file")


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_of_a_file_is_removed(tmp_path):
    ours, others = (tmp_path / f".{name}.tmp-{2**22 + 1}" for name in ("x.txt", "y.txt"))  # of no process
    living = tmp_path / ".x.txt.tmp-1"
    for path in (ours, others, living):
        path.write_text("half")
    with whole_file(tmp_path / "x.txt") as temporary:
        temporary.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"x.txt", others.name, living.name}


def test_json_round_trip_and_errors(tmp_path):
    write_json(tmp_path / "x.json", {"é": 1})
    assert read_json(tmp_path / "x.json", what="file") == {"é": 1}
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        read_json(tmp_path / "bad.json", what="file")
    with pytest.raises(UserError, match="does not exist"):
        read_json(tmp_path / "none.json", what="file")


def test_settings_differ_where_either_has_another_value():
    assert differing_keys({"a": 1, "b": [2], "c": 3, "e": None}, {"a": 1, "b": [4], "d": 5}) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("path", "is_file", "message"),
    [
        ("a.txt", False, "--out=.*a.txt is a file; name a directory"),
        ("a.txt/b/c", False, "--out=.*a.txt/b/c: .*a.txt is a file, and nothing can lie in it"),
        (".", True, "is a directory; name a file"),
        ("link", False, "a link to a place that does not exist"),
        ("n" * 300, False, r"cannot be written \(File name too long\)"),
        ("/proc/x", False, r"--out=/proc/x cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path, path, is_file, message):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=message):
        require_writable(tmp_path / path, flag="--out", is_file=is_file)


def test_asking_whether_a_place_can_be_written_leaves_nothing(tmp_path):
    require_writable(tmp_path / "a" / "b", flag="--out")
    require_writable(tmp_path / "a.npy", flag="--out", is_file=True)
    assert not list(tmp_path.iterdir())


def test_a_locked_directory_in_which_nothing_was_made_is_removed_by_its_owner_only(tmp_path):
    directory = tmp_path / "a"
    with locked_directory(directory, what="x"):
        with pytest.raises(UserError), locked_directory(directory, what="x"):
            pass
        assert directory.is_dir()
    assert not directory.exists()


def test_a_locked_directory_keeps_others_out_and_passes_errors_on(tmp_path):
    with (
        locked_directory(tmp_path, what="filling"),
        pytest.raises(UserError, match="another process is filling"),
        locked_directory(tmp_path, what="filling"),
    ):
        pass
    with pytest.raises(BlockingIOError, match="a full pipe"), locked_directory(tmp_path, what="filling"):
        raise BlockingIOError("a full pipe")
    with locked_directory(tmp_path, what="filling"):
        pass


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    abandoned = tmp_path / "in" / f".1.tmp-{2**22 + 1}"  # of a process that cannot exist
    abandoned.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), whole_directory(tmp_path / "in" / "1") as temporary:
        (temporary / "a").mkdir(parents=True)
        raise KeyboardInterrupt
    assert not list((tmp_path / "in").iterdir())
    with whole_directory(tmp_path / "in" / "1") as temporary:
        (temporary / "a").mkdir(parents=True)
        (temporary / "a" / "b").write_text("c")
        assert not (tmp_path / "in" / "1").exists()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["1"]
    assert (tmp_path / "in" / "1" / "a" / "b").read_text() == "c"
