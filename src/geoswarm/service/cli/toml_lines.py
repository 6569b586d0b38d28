"""Find the line of a key in a TOML file, which `tomllib` does not report.

This is no parser: it looks at the beginnings of lines, in a text that `tomllib` has already accepted. A key inside an
inline table is placed on the line of the nearest key round it.
"""

import re

Location = tuple[str | int, ...]
Lines = dict[Location, int]

_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_SECTION = re.compile(r"^\s*(\[{1,2})([^\[\]]+)\]")
_KEY = re.compile(r"""^((?:\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*\.?)+)=""")
_LONG_TEXT = re.compile(r"\"\"\"|" + r"'''")


def key_lines(text: str) -> Lines:
    """The line, from 1, of every key and section; for a dotted key, also of the tables that it makes. Keys of the
    second [[section]] are at ("section", 1)."""
    lines: Lines = {}
    repeats: dict[Location, int] = {}
    section: Location = ()
    in_long_text = False
    for number, line in enumerate(text.splitlines(), 1):
        inside, in_long_text = in_long_text, in_long_text ^ bool(len(_LONG_TEXT.findall(line)) % 2)
        if inside:
            continue
        if header := _SECTION.match(line):
            name = _parts(header[2])
            if header[1] == "[[":
                repeats[name] = repeats.get(name, -1) + 1
            section = path = _number_tables(name, repeats)
        elif key := _KEY.match(line):
            path = (*section, *_parts(key[1]))
        else:
            continue
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def find_line(lines: Lines, location: Location) -> int:
    """The line of a key, or of the nearest key or section round it; 0 if there is none."""
    for length in range(len(location), 0, -1):
        if location[:length] in lines:
            return lines[location[:length]]
    return 0


def _number_tables(name: Location, repeats: dict[Location, int]) -> Location:
    """The location with the number of each table in its array."""
    found: Location = ()
    for length, part in enumerate(name, 1):
        found += (part, repeats[name[:length]]) if name[:length] in repeats else (part,)
    return found


def _parts(dotted: str) -> Location:
    return tuple(next(filter(None, found), "") for found in _PART.findall(dotted))
