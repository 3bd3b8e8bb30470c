"""How Sphinx builds the site: `scripts/docs`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
paths = [str(HERE), str(ROOT), str(ROOT / "kernels")]
sys.path[:0] = paths
# What tutorials start imports the same files.
os.environ["PYTHONPATH"] = os.pathsep.join([*paths[1:], os.environ.get("PYTHONPATH", "")])

from sphinx.util.inspect import TypeAliasForwardRef  # noqa: E402

import znnpy  # noqa: E402

# Within other types, names of `autodoc_type_aliases` are written as they would be alone.
TypeAliasForwardRef.__repr__ = lambda self: self.name

project = "znnpy"
author = "The znnpy developers"
copyright = f"2026, {author}"
version = release = znnpy.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "_site"]
exclude_patterns = ["_site", "_build"]
root_doc = "index"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "console"
default_role = "code"  # what docstrings have between backticks

# Tutorials are run at every build, in folders that are removed.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 1200  # seconds for a cell; the gate runs tests beside
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {  # else NumPy's own are written out, half a page each
    "ArrayLike": "ArrayLike",
    "Arrays": "ArrayLike | Mapping[str, ArrayLike]",
    "Floats": "NDArray[floating]",
    "Extent": "int | tuple[int, int, int]",
    "Image": "NDArray | str | Path | Volume",
    "Images": "Image | Mapping[str, Image]",
    "Array": "NDArray",
}
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "znnpy"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
