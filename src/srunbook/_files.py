"""Write files whole or not at all. Standard library only; every room may use it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_whole(path: Path, text: str) -> bool:
    """Write `text` to `path` through a temporary file and a rename, and only when it differs.

    Args:
        path: The file; missing folders are made.
        text: Its new content.

    Returns:
        Whether the file was written.

    Raises:
        OSError: The text could not be written; a file that was there is as it was.
    """
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less what the umask takes
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    return True
