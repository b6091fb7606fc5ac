"""Checksums for checkpoints that are folders: a damaged one is set aside, and the one before is loaded."""

import hashlib
import json
import os
import shutil
import sys


def checksum(path):
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder, names):
    """Write the checksums of the files in a folder, last of all."""
    with (folder / "seal.json").open("w") as file:
        json.dump({name: checksum(folder / name) for name in names}, file)
        file.flush()
        os.fsync(file.fileno())


def newest_whole(checkpoints):
    """Return the newest folder whose files are those that were sealed, or None; set damaged ones aside."""
    folders = (path for path in checkpoints.glob("*") if path.name.isdigit())
    for folder in sorted(folders, key=lambda path: int(path.name), reverse=True):
        try:
            sealed = json.loads((folder / "seal.json").read_text())
            if all(checksum(folder / name) == saved for name, saved in sealed.items()):
                return folder
        except (OSError, ValueError):  # a file is missing, or the seal itself is damaged
            pass
        print(f"warning: {folder} is damaged and set aside", file=sys.stderr)
        shutil.rmtree(checkpoints / f"damaged-{folder.name}", ignore_errors=True)  # of an earlier run
        folder.rename(checkpoints / f"damaged-{folder.name}")
    return None
