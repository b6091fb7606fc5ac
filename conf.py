"""Sphinx configuration: `sphinx-build -c . docs build/site`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext"), str(ROOT / "bench")]

import colours  # noqa: E402 - from docs/_ext

from srunbook import __version__ as release  # noqa: E402, F401 - for the foot of each page

# Before anything imports jax: the examples that run inside the build see 8 CPU devices, unless the caller has chosen.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("MPLBACKEND", "agg")

REPOSITORY = "https://github.com/srunbook/srunbook"

project = "srunbook"
author = "The srunbook developers"
copyright = "The srunbook developers"
html_title = "srunbook"
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_reredirects",
    "sphinxext.opengraph",
    # ours, in docs/_ext
    "code_diff",
    "code_file",
    "recorded",
    "real_files",
    "file_table",
    "gallery",
    "failures",
    "measured",
    "version_tables",
    "drawings",
    "pages",
    "navigation",
    "llms",
    "guide_zip",
    "search_index",
]
search_weights = [
    ("gallery/", 0.5),
    ("about/", 0.5),
    ("reference/api-", 0.6),
    ("tools/command", 0.6),
    ("troubleshooting/index", 0.7),
    ("troubleshooting/", 0.9),
]
search_suggestions = ["troubleshooting/index", "guides/index", "tools/explain", "reference/glossary"]

redirect_html_template_file = "_templates/moved.html"
redirects = json.loads((ROOT / "docs" / "redirects.json").read_text(encoding="utf-8"))

exclude_patterns = ["_ext", "_static", "_templates", "_inventories", "gallery/**/*.txt"]
templates_path = ["docs/_templates"]
nitpicky = True
nitpick_ignore_regex = [("py:class", r"(jax|numpy|optax)\..*|Array|Mesh|Bandwidth")]  # not among the inventories
highlight_language = "none"
smartquotes = False

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

intersphinx_mapping = {"python": ("https://docs.python.org/3", "_inventories/python.inv")}  # nothing is fetched

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "image_scrapers": ("gallery.as_svg",),
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "css": (),
    "default_thumb_file": str(ROOT / "docs" / "_static" / "printed.svg"),
    "parallel": 2,
    "reset_modules": ("gallery.restore_environment", "gallery.style"),
    "reset_modules_order": "both",
    "capture_repr": (),
    "notebook_extensions": set(),
    "write_computation_times": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 1_000_000,
}

html_theme = "furo"
html_static_path = ["docs/_static"]
html_css_files = ["site.css", "reading.css", "plots.css", "my-cluster.css", "search.css"]
html_js_files = [
    ("site.js", {"defer": "defer"}),
    ("js/search-box.js", {"defer": "defer"}),
    ("js/my-cluster.js", {"type": "module"}),
]
html_favicon = "docs/_static/favicon.svg"
html_additional_pages = {"search": "search.html"}
html_copy_source = False
html_show_sphinx = False
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "https://srunbook.readthedocs.io/en/latest/")
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": os.environ.get("READTHEDOCS_GIT_COMMIT_HASH", "main"),  # the source of this version
    "source_edit_link": f"{REPOSITORY}/edit/main/docs/{{filename}}",  # GitHub only edits branches
    "source_directory": "docs/",
    "light_css_variables": colours.LIGHT,
    "dark_css_variables": colours.DARK,
}
pygments_style = "github-light-high-contrast"
pygments_dark_style = "github-dark-high-contrast"

ogp_site_url = html_baseurl
ogp_site_name = "srunbook"
ogp_social_cards = {"enable": False}  # one card for all pages
ogp_image = "_static/social-card.png"
ogp_image_alt = "srunbook, multi-node training on Slurm: srun starts two ranks on each of two nodes"
ogp_custom_meta_tags = ('<meta name="twitter:card" content="summary_large_image">',)

copybutton_exclude = ".linenos, .gp, del, .diff-gap"
copybutton_selector = "div.code-file pre, div.highlight-console pre, div.highlight-python pre"
