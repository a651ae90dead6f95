"""The documentation site, `sphinx-build -W docs FOLDER`: needs the extra `docs`, and no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from xmlsgd import __version__  # noqa: E402

project, author, release = "xmlsgd", "The xmlsgd maintainers", __version__
extensions = ["myst_parser", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["package.md", "templates"]  # index.md includes the first
myst_heading_anchors = 4  # links to headings as code hosts make them
autosummary_generate = True
templates_path = ["templates"]
numpydoc_show_class_members = False  # the template of classes does
html_title = f"xmlsgd {__version__}"
# Wide enough for code, whose lines have up to 120 characters.
html_theme_options = {"page_width": "1280px", "sidebar_width": "240px", "body_max_width": "1000px"}
html_show_copyright = False
autodoc_typehints = "none"  # types are in the docstrings
default_role = "literal"  # a name in single backticks is code
toc_object_entries = False

LINK_OUT = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")  # to what lies outside of docs/


def keep_links_whole(app: Sphinx, page: str, source: list[str]) -> None:
    """Make links to files of the repository downloads, and those to its folders plain text."""

    def kept(link: re.Match[str]) -> str:
        text, target = link[1], (DOCS / page).parent / link[2]
        if target.is_dir() or target.resolve().is_relative_to(DOCS):
            return text if target.is_dir() else link[0]
        return f"[{text}](path:{link[2]})"

    source[0] = LINK_OUT.sub(kept, source[0])


def skip_foreign_members(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to estimators, and the fields of tuples, which their class describes."""
    is_field = type(member).__name__ == "_tuplegetter"
    return True if is_field or str(getattr(member, "__module__", "")).startswith("sklearn.") else None


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("source-read", keep_links_whole)
