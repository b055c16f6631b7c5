"""Configuration of the documentation."""

import hetdp

project = "hetdp"
author = "The hetdp authors"
release = hetdp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"hetdp {release}"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_typehints = "none"
exclude_patterns = ["build"]
