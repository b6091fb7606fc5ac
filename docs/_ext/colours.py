"""The site's colours: the theme's variables, and those of plots. Text has a contrast of 4.5 or more on its ground."""

from __future__ import annotations

from typing import Any

from cycler import cycler

LIGHT = {
    "color-brand-primary": "#0b5a78",
    "color-brand-content": "#0b5a78",
    "color-brand-visited": "#5b3f8c",
    "color-recorded-background": "#f7f3ea",
    "color-recorded-border": "#a88a4c",
    "color-ran": "#14633a",
    "color-not-ran": "#84440a",
    "color-answer": "#e3f1f6",
    "color-code": "#f5f7f9",
    "color-emphasis": "#fff8e1",
    "color-emphasis-border": "#b7791f",
    "color-added": "#e9f7ee",
    "color-added-border": "#2f8f57",
    "color-removed": "#fdf0ee",
    "color-removed-border": "#c2564b",
    "color-api-name": "#0b5a78",
    "color-api-pre-name": "#57606a",
}
"""Variables of the light theme: furo's own, and those that site.css and the drawings use."""

DARK = {
    "color-brand-primary": "#86cbe6",
    "color-brand-content": "#86cbe6",
    "color-brand-visited": "#c5aaf0",
    "color-recorded-background": "#201d17",
    "color-recorded-border": "#8f7846",
    "color-ran": "#86d8a8",
    "color-not-ran": "#f2b878",
    "color-answer": "#17323d",
    "color-code": "#0b0d10",
    "color-emphasis": "#332a14",
    "color-emphasis-border": "#d9a441",
    "color-added": "#10291a",
    "color-added-border": "#4fae79",
    "color-removed": "#331916",
    "color-removed-border": "#d9776c",
    "color-api-name": "#86cbe6",
    "color-api-pre-name": "#a5adb6",
}
"""Variables of the dark theme."""

PLOT = {
    "light": ("#1c1917", "#0b63a5", "#a3480c", "#1a7344", "#8b3fa0"),
    "dark": ("#e7e5e4", "#6cb8f5", "#f0a368", "#6cc797", "#d39be6"),
}
"""Text colour and the colours of the series, for each of the two themes."""


def plot_style(theme: str) -> dict[Any, Any]:
    """Return matplotlib's settings for a plot in the colours of a theme, which is the same at every build."""
    places = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
    return {
        "axes.prop_cycle": cycler(color=PLOT[theme][1:]),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.family": "sans-serif",
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "srunbook",
        **dict.fromkeys(places, PLOT[theme][0]),
    }
