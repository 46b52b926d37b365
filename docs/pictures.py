"""Draws the pictures of the guide: `python docs/pictures.py` renews docs/pictures/*.svg."""

from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).with_name("pictures")
INK, BLUE, ORANGE, GREEN, GREY = "#333333", "#0072B2", "#D55E00", "#009E73", "#DDDDDD"

CELL = 22
RATIO, QUERIES = 4, 13


def pictures() -> dict[str, str]:
    """File name → SVG text; equal on every machine."""
    return {"mask.svg": _svg(470, 385, _mask()), "tiles.svg": _svg(720, 330, _tiles())}


def _svg(width: int, height: int, parts: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    ground = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _mask() -> Iterator[str]:
    """Which keys each token sees: a window of RATIO tokens becomes a key once its last token is there."""
    left, top = 150, 60
    keys = QUERIES // RATIO
    for key in range(keys):
        x = left + key * 3 * CELL
        yield _text(x + 1.5 * CELL, top - 28, f"key {key}", INK)
        yield _text(x + 1.5 * CELL, top - 12, f"{key * RATIO}…{key * RATIO + RATIO - 1}", "#777777", 11)
    for token in range(QUERIES):
        y = top + token * CELL
        yield _text(left - 12, y + 16, f"token {token}", INK, 12, "end")
        for key in range(keys):
            seen = key < (token + 1) // RATIO
            yield _box(left + key * 3 * CELL, y, 3 * CELL - 4, CELL - 4, BLUE if seen else GREY)
    yield _text(left + 100, top + QUERIES * CELL + 24, "token 12 opens a window, which is no key yet", INK, 12)


def _tiles() -> Iterator[str]:
    """One block of the scores kernel: a tile of keys times the heads of two queries, then relu, weights and a sum."""
    yield from _labelled(20, 60, 110, 200, GREEN, "K tile", "keys × dim")
    yield _text(150, 165, "×", INK, 22)
    yield from _labelled(170, 60, 150, 110, ORANGE, "Q tile ᵀ", "dim × (2 queries · heads)")
    yield _text(340, 165, "=", INK, 22)
    for query in range(2):
        yield _box(365 + query * 80, 60, 76, 200, BLUE, 0.35 + 0.25 * query)
        yield _text(403 + query * 80, 165, f"query {query}", INK, 12)
    yield _text(443, 45, "products, in registers", INK)
    yield _text(443, 282, "keys × (2 queries · heads)", "#777777", 12)
    yield _text(564, 150, "relu, · w", INK, 12)
    yield _text(564, 170, "Σ heads →", INK, 12)
    for query in range(2):
        yield _box(605 + query * 40, 60, 34, 200, BLUE, 0.35 + 0.25 * query)
    yield _text(642, 45, "scores", INK)
    yield _text(642, 282, "keys × 2 queries", "#777777", 12)
    yield _text(380, 318, "The next key tile is copied while this one is multiplied.", INK, 12)


def _labelled(x: int, y: int, width: int, height: int, color: str, name: str, sizes: str) -> Iterator[str]:
    yield _box(x, y, width, height, color, 0.5)
    yield _text(x + width / 2, y - 15, name, INK)
    yield _text(x + width / 2, y + height + 22, sizes, "#777777", 12)


def _box(x: float, y: float, width: float, height: float, color: str, opacity: float = 1) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
    return f'<rect {place} fill="{color}" fill-opacity="{opacity:g}"/>'


def _text(x: float, y: float, text: str, color: str, size: int = 14, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}">{text}</text>'


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
