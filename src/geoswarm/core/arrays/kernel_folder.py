"""Where the machine code of kernels is kept between processes: one folder for an installation.

Beside the package, so that an image or an archive of the environment carries it along; where that cannot be written, in
the user's cache folder. Code that is beside the package is used from a read-only installation, too. `kernel_cache.py`
says what is in it.
"""

import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path

import numba

from geoswarm.version import SOURCE_FOLDER

OWN = Path(SOURCE_FOLDER) / "geoswarm" / "__pycache__" / "kernels"
"""The folder beside the package."""


@lru_cache(1)
def folder_to_write() -> Path | None:
    """The folder for new machine code; None if there is none: then it lasts as long as the process.
    The environment's NUMBA_CACHE_DIR names another place."""
    where = hashlib.sha256(SOURCE_FOLDER.encode()).hexdigest()[:12]  # two installations keep out of each other's way
    if numba.config.CACHE_DIR:
        return _if_writable(Path(numba.config.CACHE_DIR) / f"geoswarm-{where}")
    return _if_writable(OWN) or _if_writable(cache_folder() / f"kernels-{where}")


def folders_to_read() -> list[Path]:
    """That folder, and what came with the installation; only the one that NUMBA_CACHE_DIR names, if it does."""
    written = folder_to_write()
    if numba.config.CACHE_DIR:
        return [written] if written is not None else []
    return [OWN] if written is None or written == OWN else [written, OWN]


def cache_folder() -> Path:
    """The user's, for geoswarm."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "geoswarm"


def _if_writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder
