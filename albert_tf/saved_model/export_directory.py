"""An export's directory: its numbered versions, and the names and the manifest of what lies in one."""

from pathlib import Path
from typing import Any

from albert_tf.errors import UserError
from albert_tf.files import read_json

EXPORT_MANIFEST_FILE = "assets/export_manifest.json"
LABELS_FILE = "assets/labels.txt"


def read_export_manifest(directory: Path) -> dict[str, Any]:
    """Returns the manifest of an export, the version's directory; raises UserError where there is none."""
    if not (directory / EXPORT_MANIFEST_FILE).exists():
        raise UserError(
            f"{directory} is no export of this project, or not all of one: it has no {EXPORT_MANIFEST_FILE}; "
            "make one with python -m albert_tf.export_saved_model"
        )
    return read_json(directory / EXPORT_MANIFEST_FILE, what="export manifest")


def version_directory(directory: Path) -> Path:
    """Returns the export that --saved_model_dir names: the directory, or the highest of its numbered versions."""
    if (directory / "saved_model.pb").exists():
        return directory
    versions = [path for path in directory.glob("*") if path.name.isdecimal() and (path / "saved_model.pb").exists()]
    if not versions:
        raise UserError(f"--saved_model_dir={directory} is not an export and holds none (there is no saved_model.pb)")
    return max(versions, key=lambda path: int(path.name))
