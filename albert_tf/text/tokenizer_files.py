"""The tokenizers: one interface, two kinds, and loading whichever a path holds."""

from pathlib import Path

from albert_tf.errors import UserError
from albert_tf.text.hugging_face_tokenizer import TOKENIZER_FILE, is_hf_tokenizer, read_hf_tokenizer
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import SETTINGS_FILE, Tokenizer, TokenizerSettings, read_settings, require_settings
from albert_tf.text.wordpiece_tokenizer import UNK, WordPieceTokenizer

__all__ = [
    "TOKENIZER_DIRECTORY",
    "SentencePieceTokenizer",
    "Tokenizer",
    "TokenizerSettings",
    "WordPieceTokenizer",
    "holds_tokenizer",
    "load_tokenizer",
]

TOKENIZER_DIRECTORY = "tokenizer"  # in a directory of records, and beside checkpoints

_RELEASED = ("*.model", "vocab*.txt")  # names of models in the released archives

_KINDS: dict[str, type[Tokenizer]] = {kind.kind: kind for kind in (SentencePieceTokenizer, WordPieceTokenizer)}


def load_tokenizer(
    path: str | Path, *, kind: str | None = None, lower_case: bool | None = None, strip_accents: bool | None = None
) -> Tokenizer:
    """Loads a saved or a Hugging Face directory, a SentencePiece model, a WordPiece vocabulary, or one in a directory.

    `lower_case` and `strip_accents` are for models that come without settings; with settings they must agree. One of
    another `kind` (None: any) raises UserError.
    """
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    names = (directory.name, TOKENIZER_FILE, *(kind.file_name for kind in _KINDS.values()))
    if Path(path).name in names and is_hf_tokenizer(directory) and not (directory / SETTINGS_FILE).exists():
        tokenizer = read_hf_tokenizer(directory)
        require_settings(tokenizer.settings, source=directory, lower_case=lower_case, strip_accents=strip_accents)
        return tokenizer
    file = _model_file(Path(path)) if Path(path).is_dir() else Path(path)
    settings_file = file.with_name(SETTINGS_FILE)
    found = read_settings(settings_file)[0] if settings_file.exists() else _kind_of_file(file)
    if found not in _KINDS:
        raise UserError(f"{settings_file} names the unknown kind {found!r}; known are {', '.join(_KINDS)}")
    if kind == WordPieceTokenizer.kind != found:
        pieces = ", ".join(WordPieceTokenizer.special_pieces)
        raise UserError(f"{file} is no WordPiece vocabulary, which has a piece a line, {pieces} among them")
    if kind == SentencePieceTokenizer.kind != found:
        raise UserError(f"{file} is a WordPiece vocabulary, not a SentencePiece model; pass it as --vocab_file")
    return _KINDS[found].load(file, lower_case=lower_case, strip_accents=strip_accents)


def holds_tokenizer(directory: Path) -> bool:
    """Returns whether `load_tokenizer` finds a tokenizer, whole or not, in a directory."""
    patterns = (SETTINGS_FILE, TOKENIZER_FILE, *(kind.file_name for kind in _KINDS.values()), *_RELEASED)
    return any(any(directory.glob(pattern)) for pattern in patterns)


def _model_file(directory: Path) -> Path:
    """Returns the model in a directory; the released archives name theirs 30k-clean.model and vocab_chinese.txt."""
    saved = directory / SETTINGS_FILE
    if saved.exists() and (kind := _KINDS.get(read_settings(saved)[0])):
        return directory / kind.file_name
    for found in ([directory / kind.file_name for kind in _KINDS.values()],
                  *([*directory.glob(pattern)] for pattern in _RELEASED)):  # fmt: skip
        found = [file for file in found if file.is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(f"{directory} holds several tokenizers: {', '.join(file.name for file in found)}; name one")
    raise UserError(f"{directory} holds no tokenizer: neither spiece.model (or another *.model) nor vocab.txt")


def _kind_of_file(file: Path) -> str:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"tokenizer {str(file)!r} cannot be read: {error.strerror}") from None
    is_wordpiece = any(line.rstrip() == UNK.encode() for line in lines)
    return WordPieceTokenizer.kind if is_wordpiece else SentencePieceTokenizer.kind
