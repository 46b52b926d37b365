"""Which names a spec may have: each becomes a Python package and a folder, on every system."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
import unicodedata

MAX_LENGTH = 64
PATTERN = "[a-z][a-z0-9_]*"

PLAIN = "lowercase letters, digits and underscores after a first letter"

_PORTS = tuple(f"{port}{number}" for port in ("com", "lpt") for number in range(10))
_WINDOWS_DEVICES = frozenset(("con", "prn", "aux", "nul", *_PORTS))
# Whether a name is accepted must not depend on the Python that asks.
# fmt: off
_STDLIB_OF_SOME_PYTHONS = frozenset((
    "aifc", "annotationlib", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "compression", "crypt",
    "distutils", "imghdr", "imp", "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd",
    "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib",
))
# fmt: on
_SOFT_KEYWORDS = frozenset(("case", "match", "type"))
# What a generated package imports, or lives in.
_NEIGHBOURS = frozenset(("tilelang", "torch", "triton", "tvm", "v4gen"))


def name_fault(name: str) -> str | None:
    """Why `name` cannot be a spec's name, as the end of a sentence that starts with the name; None when it can."""
    if not name:
        return "is empty"
    if any(separator in name for separator in "/\\:") or name.strip(".") == "":
        return "is a path; a name is one folder's name"
    if not is_plain(name):
        return f"is not made of {_wrong_characters(name)}"
    if len(name) > MAX_LENGTH:
        return f"is {len(name)} characters long; a name has at most {MAX_LENGTH}"
    return _clash(name)


def is_plain(name: str) -> bool:
    """Whether `name` is made of lowercase letters, digits and underscores, and starts with a letter."""
    return re.fullmatch(PATTERN, name) is not None


def name_hint(name: str) -> str | None:
    """A name near `name` that is accepted, as a hint; None when there is none."""
    candidate = folder_key(name).strip("_")
    return f"write `{candidate}`" if candidate != name and name_fault(candidate) is None else None


def folder_key(name: str) -> str:
    """What two names have in common when they would share an output folder on some disk or in some import system."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).replace("-", "_")


def _wrong_characters(name: str) -> str:
    if not name.isascii():
        return "ASCII letters; other alphabets fold into each other on some disks and in Python's imports"
    if name.startswith("_"):
        return f"{PLAIN}; leading underscores are Python's own"
    return PLAIN


def _clash(name: str) -> str | None:
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _SOFT_KEYWORDS:
        return "is a Python keyword"
    if hasattr(builtins, name):
        return "is a Python builtin"
    if name in _WINDOWS_DEVICES:
        return "is a device on Windows, where no folder can have that name"
    if name in sys.stdlib_module_names or name in _STDLIB_OF_SOME_PYTHONS:
        return "is a module of Python's standard library, which the package would hide"
    if name in _NEIGHBOURS:
        return "is a package that generated code runs beside, and would hide it"
    return None
