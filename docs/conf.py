"""Configuration of the site: `make docs` builds it with warnings as errors."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT)]

from site_parts import arguments, gallery, inventories, links, members, overloads, results

import torchonline

project = "torchonline"
author = "The torchonline developers"
copyright = author
release = version = torchonline.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst", "gallery/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
# Every reference is resolved, but for
nitpicky = True
nitpick_ignore_regex = [
    # methods for those who write a subclass, which stand in the source alone,
    ("py:meth", r"_\w+"),
    # what all metrics compute, in the words of a base that has none,
    ("py:meth", "compute"),
    # and types in signatures that nobody names.
    ("py:class", r"torchonline\.(core\.(views|options)|privacy\.learners\.released|serving\.replica)\.\w+"),
    ("py:class", r"torchonline\.(off_policy\.intervals\.Bound|testing\.Check|export\.compiled\.CompiledProgram)"),
    ("py:class", r"torchonline\.(features\.rows\.RowReader|models\.raw_log\.RawLog)"),
    ("py:class", r"torchonline\.baselines\.private\.dp_ucb\.ReleasedDPUCB"),
    ("py:class", r"torchonline\.baselines\.private\.fliphat\.ReleasedFLIPHAT"),
    ("py:class", r"pytorch_lightning\.callbacks\.callback\.Callback"),
    ("py:class", r"huggingface_hub\.\w+\.\w+"),
]

# Markdown pages, which GitHub shows as well: headings have GitHub's anchors.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# The reference is made from docstrings.
autosummary_generate = True
autosummary_context = members.CONTEXT
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
# As written, defaults would be looked for in the source, where noise_scale is no keyword alone yet.
autodoc_preserve_defaults = False
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Reference", "Shape", "Protocol", "Cost"]
toc_object_entries_show_parents = "hide"

intersphinx_mapping = inventories.written(DOCS / "_build" / "inventories")

gallery.remove_if_stale(DOCS / "gallery")
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "site_parts.gallery.InReadingOrder",
    "backreferences_dir": "reference/examples",
    "doc_module": ("torchonline",),
    "reference_url": {"torchonline": None},
    "matplotlib_animations": (True, "jshtml"),
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "capture_repr": (),  # what is printed, and not what calls of matplotlib return
    "image_srcset": ["2x"],
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "reset_modules": ("matplotlib",),
    "plot_gallery": "True",
}

# For `make linkcheck`. GitHub makes the anchors of its pages by scripts.
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]
linkcheck_allowed_redirects = {r"https?://.*": r"https?://.*"}
linkcheck_ignore = [r"(\.\./)*_modules/.*", r"http://(localhost|127\.0\.0\.1).*"]
linkcheck_timeout = 30
linkcheck_retries = 2

html_theme = "pydata_sphinx_theme"
html_title = "torchonline"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "torchonline"},
    "show_toc_level": 2,
    "navigation_depth": 3,
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": []}


def setup(app) -> None:
    """Connect what Sphinx has no option for."""
    app.connect("builder-inited", overloads.forget)
    app.connect("builder-inited", results.write)
    app.connect("source-read", links.copy_page)
    # Before napoleon, whose priority is 500, turns sections into fields.
    app.connect("autodoc-process-docstring", arguments.expand, priority=400)
    app.connect("autodoc-process-docstring", links.link_pages)
    app.connect("missing-reference", links.find_by_last_name)
    app.connect("doctree-read", links.link_sources)
    app.connect("doctree-resolved", links.link_names)
    app.connect("html-page-context", links.drop_back_links)
