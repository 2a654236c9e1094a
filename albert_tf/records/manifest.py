"""The manifest that closes a directory of records: written last, so that its presence says the records are whole."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.errors import UserError
from albert_tf.files import read_json, write_json
from albert_tf.text.tokenizer_files import TOKENIZER_DIRECTORY, Tokenizer, load_tokenizer

MANIFEST_FILE = "manifest.json"
TOKEN_COUNTS_FILE = "token_counts.npy"
UNFINISHED_DIRECTORY = ".spill"  # work of a run that makes records; gone when it is done
FORMAT_VERSION = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """What a file of records holds, and the size by which a damaged or exchanged one is known without reading it."""

    examples: int
    size_bytes: int

    def problem(self, file: Path) -> str | None:
        """Returns what is wrong with `file`, as it follows on its name, or None where nothing is seen."""
        if not file.exists():
            return "is missing"
        size = file.stat().st_size
        return None if size == self.size_bytes else f"has {size:,} bytes, and {self.size_bytes:,} were written"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a reader must know of a directory of records, and what its maker learned while writing it."""

    max_seq_length: int
    max_predictions_per_seq: int
    pair_task: str
    vocab_size: int
    tokenizer_fingerprint: str
    shards: dict[str, Shard]  # by file name
    settings: dict[str, Any]
    statistics: dict[str, Any]
    albert_tf_version: str
    format_version: int = FORMAT_VERSION

    def save(self, directory: Path) -> None:
        """Writes `manifest.json`; every file it names must be in place."""
        write_json(directory / MANIFEST_FILE, dataclasses.asdict(self))

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Reads a directory's manifest; an unknown version or a missing field raises UserError."""
        path = directory / MANIFEST_FILE
        values = read_json(path, what="manifest")
        if not isinstance(values, dict) or values.get("format_version") != FORMAT_VERSION:
            raise UserError(
                f"{path} must be a manifest of format version {FORMAT_VERSION}, as "
                "data_prep/create_pretraining_data.py writes it; make the records again"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        if set(values) != names:
            raise UserError(f"{path} has other fields than expected: {', '.join(sorted(set(values) ^ names))}")
        shards = {name: Shard(**shard) for name, shard in values["shards"].items()}
        return cls(**{**values, "shards": shards})


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordsDirectory:
    """A manifest with the directory that it stands in."""

    path: Path
    manifest: Manifest

    @classmethod
    def of_files(cls, files: Sequence[Path], *, complete: bool = False) -> "RecordsDirectory | None":
        """Returns the directory that `files` belong to, or None where no manifest is beside them.

        Raises UserError for files of several directories with manifests, files that the manifest does not list, and
        files of another size than was written; where they are to be `complete`, also of others of their kind (train,
        eval), or where one of these is missing. Nothing of them is read.
        """
        directories = sorted({file.parent.resolve() for file in files if (file.parent / MANIFEST_FILE).exists()})
        unfinished = [file.parent for file in files if (file.parent / UNFINISHED_DIRECTORY).exists()]
        if unfinished:
            raise UserError(f"the records in {unfinished[0]} are not finished; repeat the command that makes them")
        if not directories:
            return None
        outside = [file for file in files if file.parent.resolve() != directories[0]]
        if outside:
            raise UserError(
                f"all records must come from one directory; received {directories[0]} and {outside[0].parent}"
            )
        manifest = Manifest.load(directories[0])
        for file in files:
            if file.name not in manifest.shards:
                raise UserError(f"{file} is not listed in {directories[0] / MANIFEST_FILE}; it comes from another run")
        names = {file.name for file in files}
        kinds = {_kind(name) for name in names} if complete else set()
        for name, shard in manifest.shards.items():
            problem = shard.problem(directories[0] / name) if name in names or _kind(name) in kinds else None
            if problem:
                raise UserError(f"{directories[0] / name} {problem}: copy it again from where the records were made, "
                                "or delete the directory and make them again")  # fmt: skip
        return cls(path=directories[0], manifest=manifest)

    def load_tokenizer(self) -> Tokenizer:
        """Loads the tokenizer that made the records and checks that it is the same."""
        tokenizer = load_tokenizer(self.path / TOKENIZER_DIRECTORY)
        if tokenizer.fingerprint != self.manifest.tokenizer_fingerprint:
            raise UserError(f"the tokenizer in {self.path / TOKENIZER_DIRECTORY} is not the one that made the records")
        return tokenizer

    def load_token_counts(self) -> np.ndarray:
        """Returns int64 [vocab_size]: how often each id occurs in the training documents."""
        try:
            return np.load(self.path / TOKEN_COUNTS_FILE)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.path / TOKEN_COUNTS_FILE} cannot be read ({error}); make the records again"
            ) from None


def _kind(name: str) -> str:
    """Returns what stands before the number of a shard: train or eval."""
    return name.partition("-")[0]
