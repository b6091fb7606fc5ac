"""Plots of the gallery: whole, as SVG without a ground, in the site's colours. plots.css turns them for dark themes."""

from __future__ import annotations

import re
from typing import Any

import matplotlib as mpl
from colours import PLOT
from cycler import cycler
from sphinx_gallery.scrapers import matplotlib_scraper


def style(_conf: dict[str, Any], _name: str) -> None:
    """Set matplotlib's colours and fonts before each example, and again after it."""
    ink, *colours = PLOT["light"]
    mpl.rcdefaults()
    mpl.use("agg")
    settings: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=colours),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.family": "sans-serif",
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "srunbook",
    }
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), ink)
    mpl.rcParams.update(settings)


def as_svg(block: tuple[Any, ...], block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save an example's figures, and return the reStructuredText that shows them.

    The gallery's own directive copies pictures to one folder by their name alone, where those of two guides with the
    same name meet; `image` gives each a name of its own.
    """
    options = {"format": "svg", "bbox_inches": "tight", "transparent": True, "metadata": {"Date": None}}
    shown = matplotlib_scraper(block, block_vars, gallery_conf, **options)
    return re.sub(r"^ *:srcset:.*\n", "", shown, flags=re.MULTILINE).replace("image-sg::", "image::")
