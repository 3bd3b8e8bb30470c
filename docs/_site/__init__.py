"""What the site has beside its documents: pages made from the code, files of other folders, cells that run commands."""

from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this when it loads the extension."""
    from _site import cells, python_page, sources

    app.connect("source-read", sources.read)
    app.connect("builder-inited", cells.prepare)
    app.connect("env-before-read-docs", cells.spread)
    app.connect("doctree-read", cells.show_prompts)
    app.connect("doctree-read", python_page.refuse_unreadable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
