"""The site: ``sphinx-build -W docs site``."""

import os
import sys
import warnings
from importlib.metadata import version as version_of
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1] / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # figures that measure time, and small matrices

project = "P3DC-Shot"
author = "The P3DC-Shot developers"
copyright = "the P3DC-Shot developers, MIT licence"  # noqa: A001
version = release = version_of("p3dc-shot")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_pages",
    "http_pages",
    "mathml",
    "source_pages",
]
exclude_patterns = ["gallery/*", "sg_execution_times.rst", "examples/sg_execution_times.rst"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(matplotlib|numpy|pandas|sklearn|torch)\..*")]  # other sites are not asked
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # a function in sphinx_gallery_conf

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "P3DC-Shot"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_favicon = "_static/mark.svg"
html_theme_options = {
    "logo": {"text": "P3DC-Shot", "image_light": "_static/mark.svg", "image_dark": "_static/mark.svg"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button-field"],
    "header_links_before_dropdown": 5,
    "show_prev_next": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {page: [] for page in ("index", "glossary", "faq", "troubleshooting", "citing")}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

warnings.filterwarnings("error", module="p3dc")


def use_figure_style(gallery_conf: dict, _name: str) -> None:
    """Draw every figure of the gallery on a light ground of its own, large enough to read."""
    import matplotlib as mpl

    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.facecolor": "white",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.constrained_layout.use": True,
        }
    )


sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["examples"],
    "filename_pattern": r".*\.py",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e6,
    "remove_config_comments": True,
    "reset_modules": ("matplotlib", use_figure_style),
    "abort_on_example_error": True,
    "plot_gallery": "True",
}
