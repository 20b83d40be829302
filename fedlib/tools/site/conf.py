"""Sphinx's settings: Markdown and notebooks, docstrings, formulas as MathML, nothing from another server."""

import fedlib

project = "fedlib"
release = version = fedlib.__version__
html_title = "fedlib"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["myst_nb", "fedlib.tools.site.extension"]
exclude_patterns = ["_*"]
default_role = "code"
smartquotes_action = "D"  # dashes only: quotes in numbers and code stay as they are
add_module_names = False

autodoc_member_order = "bysource"
maximum_signature_line_length = 88
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Source"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_all_links_external = True  # links are addresses of pages; tests/test_site.py follows them
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # an output is a picture, a table or text; nothing is fetched for it
nb_merge_streams = True

html_theme = "furo"
html_math_renderer = "mathml"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
templates_path = ["theme"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False


def variables(link: str, visited: str, muted: str, secondary: str) -> dict[str, str]:
    """The colours of a scheme, by their names in the theme."""
    brand = {"color-brand-primary": link, "color-brand-content": link, "color-brand-visited": visited}
    text = {"color-foreground-muted": muted, "color-foreground-secondary": secondary}
    return brand | text | {"color-api-name": link, "color-api-pre-name": link}


html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": variables(link="#00588a", visited="#5b3a8e", muted="#5a5c63", secondary="#4a4d55"),
    "dark_css_variables": variables(link="#7cc4f0", visited="#c9a7f5", muted="#a3a8b0", secondary="#b5bac2"),
}
