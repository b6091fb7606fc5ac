"""Make small data for the three training programs beside this file, the same on every call.

    python make_data.py FOLDER

writes

    FOLDER/shapes/<class>/<number>.png    403 images of 16 by 16 pixels in 4 classes
    FOLDER/tales.txt                      about 50 kB of English from a small grammar
    FOLDER/flats.csv                      1000 rows: six numbers that describe a flat, and its price
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 16
CLASSES = {"cross": 104, "disc": 97, "ring": 103, "stripes": 99}
TEXT_BYTES = 50_000
ROWS = 1000

GRAMMAR = {
    "tale": ["{opening} {event}. {event}. {ending}.", "{opening} {event}. {ending}.", '{opening} {event}. "{speech}."'],
    "opening": ["Once upon a time", "Long ago", "One winter morning", "In those days", "When the moon was full"],
    "event": ["{who} {verb} {whom}", "{who} went to {place} and {verb} {whom}", "in {place} {who} {verb} {whom}"],
    "ending": ["And {who} was never seen again", "Then {who} slept until spring", "So {who} went home to {place}"],
    "speech": ["Who {verb} {whom}?", "I shall go to {place}", "Nobody here {verb} {whom}", "Give me {whom}"],
    "who": ["the {kind} {animal}", "the {animal}", "an old {animal}", "a {kind} {animal}"],
    "whom": ["{who}", "a {kind} {thing}", "the {thing} of {who}", "its {thing}"],
    "verb": ["found", "lost", "followed", "hid", "carried", "feared", "remembered"],
    "place": ["the forest", "the river", "the town", "a {kind} house", "the far hills"],
    "kind": ["small", "quiet", "grey", "clever", "golden", "hungry", "proud"],
    "animal": ["fox", "wolf", "hare", "crow", "bear", "goose", "mouse"],
    "thing": ["lantern", "ring", "key", "loaf", "shadow", "song", "coat"],
}


def shape(name: str, rng: np.random.Generator) -> np.ndarray:
    """Return one image of a class as bytes of shape (SIZE, SIZE, 3)."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    y, x = rows - SIZE / 2 + rng.uniform(-2, 2), columns - SIZE / 2 + rng.uniform(-2, 2)
    radius = rng.uniform(4, 6)
    distance = np.hypot(x, y)
    inside = {
        "cross": ((abs(x) < 1.5) | (abs(y) < 1.5)) & (np.maximum(abs(x), abs(y)) < radius),
        "disc": distance < radius,
        "ring": abs(distance - radius) < 1,
        "stripes": (columns + rng.integers(4)) % 4 < 2,
    }[name]
    colours = rng.uniform(0, 140, 3), rng.uniform(110, 255, 3)
    pixels = np.where(inside[..., None], colours[1], colours[0]) + rng.normal(0, 20, (SIZE, SIZE, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def make_shapes(folder: Path) -> None:
    """Write the images, a folder for each class."""
    rng = np.random.default_rng(1)
    for name, count in CLASSES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(shape(name, rng)).save(folder / name / f"{number:03}.png")


def expand(symbol: str, choose: Callable[[list[str]], str]) -> str:
    """Return a text of the grammar for a symbol."""
    text = choose(GRAMMAR[symbol])
    while "{" in text:
        before, rest = text.split("{", 1)
        inner, after = rest.split("}", 1)
        text = before + expand(inner, choose) + after
    return text


def make_tales(path: Path) -> None:
    """Write tales, one a line, until the text is long enough."""
    choose = random.Random(2).choice
    text = ""
    while len(text) < TEXT_BYTES:
        text += expand("tale", choose) + "\n"
    path.write_text(text, encoding="utf-8")


def make_flats(path: Path) -> None:
    """Write the table; the price, in thousands, is a curved function of the rest and some noise."""
    rng = np.random.default_rng(3)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["area_m2", "rooms", "floor", "year_built", "km_to_centre", "has_lift", "price_k"])
        for _ in range(ROWS):
            area = rng.gamma(9, 8) + 18
            rooms = max(1, round(area / 27 + rng.normal(0, 0.6)))
            floor, lift = int(rng.integers(0, 9)), int(rng.random() < 0.5)
            year, distance = int(rng.integers(1900, 2024)), rng.exponential(4) + 0.2
            price = area * (2.2 + 3.5 * np.exp(-distance / 4)) + 12 * rooms + 0.012 * (year - 1955) ** 2
            price += floor * (5 if lift else -4) + rng.normal(0, 12)
            writer.writerow([f"{area:.1f}", rooms, floor, year, f"{distance:.2f}", lift, f"{price:.1f}"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    make_shapes(target / "shapes")
    make_tales(target / "tales.txt")
    make_flats(target / "flats.csv")
