"""A hook of MkDocs: the search shows pages for users before decisions, benchmarks and the changelog."""

# A title weighs a thousand times as much as a text: a word in the text of a guide still comes before such a title.
BOOSTS = {
    "decisions/": 1e-4,
    "benchmarks/": 1e-4,
    "changelog.md": 1e-4,
    "dependencies.md": 0.01,
    "reference/": 0.5,
}


def boost_of(path: str) -> float:
    """What the score of a page's sections is multiplied by."""
    return next((boost for start, boost in BOOSTS.items() if path.startswith(start)), 1.0)


def on_page_markdown(markdown: str, page, config, files) -> str:
    page.meta.setdefault("search", {}).setdefault("boost", boost_of(page.file.src_uri))
    return markdown
