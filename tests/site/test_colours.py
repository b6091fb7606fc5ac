"""Text, code and plots can be read on every ground that the site gives them."""

from __future__ import annotations

import re
from pathlib import Path

import colours
import pytest
from pygments.styles import get_style_by_name

ROOT = Path(__file__).resolve().parents[2]
GROUNDS = ["color-code", "color-emphasis", "color-added", "color-removed", "color-recorded-background"]
PANEL = ROOT / "docs" / "_static" / "my-cluster.css"
FITTED = re.findall(r"--color-fitted: (#\w+)", PANEL.read_text(encoding="utf-8"))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours such as #0b5a78, as WCAG defines it.

    >>> round(contrast("#ffffff", "#000000"))
    21
    """

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("theme", "style", "fitted"),
    [
        (colours.LIGHT, "github-light-high-contrast", FITTED[0]),
        (colours.DARK, "github-dark-high-contrast", FITTED[1]),
    ],
    ids=["light", "dark"],
)
def test_code_can_be_read(theme, style, fitted):
    """Every colour of the highlighting has a contrast of 4.5 or more on every ground of code."""
    assert f'"{style}"' in (ROOT / "conf.py").read_text(encoding="utf-8")
    found = {f"#{token['color']}" for _, token in get_style_by_name(style) if token["color"] and not token["bgcolor"]}
    poor = [
        (name, ground, colour, round(contrast(ground, colour), 2))
        for name, ground in [*((name, theme[name]) for name in GROUNDS), ("fitted", fitted)]
        for colour in sorted(found)
        if contrast(ground, colour) < 4.5
    ]

    assert len(found) > 4
    assert poor == []


@pytest.mark.parametrize(("theme", "ground"), [("LIGHT", "#ffffff"), ("DARK", "#131416")])
def test_contrast(theme, ground):
    """Text in the site's own colours has a contrast of at least 4.5 on the grounds where it stands."""
    variables = getattr(colours, theme)
    text = [variables[f"color-{name}"] for name in ("brand-primary", "brand-visited", "ran", "not-ran")]

    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert min(contrast(colour, ground) for colour in text) >= 4.5
    for name in ("ran", "not-ran"):
        assert contrast(variables[f"color-{name}"], variables["color-recorded-background"]) >= 4.5


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#131416")])
def test_contrast_of_plots(theme, ground):
    """Every colour of a plot has a contrast of at least 4.5 on its ground."""
    assert min(contrast(colour, ground) for colour in colours.PLOT[theme]) >= 4.5
