"""Settings of the book. `scripts/build-book` builds it; the output needs no network."""

project = "Weir"
author = "The Weir contributors"
copyright = "The Weir contributors"

extensions = ["myst_parser", "sphinx.ext.graphviz"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["requirements.in", "requirements.txt"]

# Anchors for headings, so that a link to a section is checked.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# Words such as http://127.0.0.1:8080 stay text unless they are written as links.
myst_linkify_fuzzy_links = False

graphviz_output_format = "svg"

html_theme = "furo"
html_title = "Weir"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False
# The output is the same for the same sources.
html_last_updated_fmt = None


def setup(app):
    """Names the lexer of Rust examples that rustdoc does not compile."""
    from pygments.lexers.rust import RustLexer

    app.add_lexer("rust,ignore", RustLexer)
