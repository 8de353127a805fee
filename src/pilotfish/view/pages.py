"""The files of the page, and what it may do: the same for the server and for an exported folder."""

from __future__ import annotations

from importlib.resources import files

PAGE = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
"""Of the page: its own scripts, styles and figures, and nothing else from anywhere."""
SCRIPTS = ("source.js", "rows.js", "list.js", "episode.js", "together.js", "curves.js", "view.js")
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and type of each file by its name; the first style sheet is the report's."""
    report, own = files("pilotfish.report"), files("pilotfish.view").joinpath("page")
    found = {"report.css": report.joinpath("page.css"), **{name: own.joinpath(name) for name in _OWN}}
    return {name: (file.read_bytes(), KINDS[name.rpartition(".")[2]]) for name, file in found.items()}


_OWN = (PAGE, "view.css", *SCRIPTS)
