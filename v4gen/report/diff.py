"""Unified diffs in the colours of `git diff`."""

_BOLD, _RED, _GREEN, _CYAN, _RESET = "\033[1m", "\033[31m", "\033[32m", "\033[36m", "\033[0m"
_STYLES = (("--- ", _BOLD), ("+++ ", _BOLD), ("@@", _CYAN), ("-", _RED), ("+", _GREEN))


def colored_diff(diff: str) -> str:
    """`diff` of one file with each line in its colour; the text itself stays as it is."""
    header = diff.find("@@")
    return _colored(diff[:header], _STYLES) + _colored(diff[header:], _STYLES[2:]) if header >= 0 else diff


def _colored(text: str, styles: tuple[tuple[str, str], ...]) -> str:
    # Split at LF alone: a form feed in a line is no line's end. A removed line may itself begin with "--".
    return "\n".join(_line(line, styles) for line in text.split("\n"))


def _line(line: str, styles: tuple[tuple[str, str], ...]) -> str:
    style = next((style for start, style in styles if line.startswith(start)), None)
    return f"{style}{line}{_RESET}" if style else line
