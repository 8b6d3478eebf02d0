"""Sphinx: the pages of this folder, the texts outside it that they link to, and the API from its docstrings.

The notebooks of ``examples/`` are run, unless ``nb_execution_mode`` is ``off``; what has not changed is kept from the
last time.

python -m sphinx -W --keep-going -b html docs docs/_build/html
"""

import os
import pathlib
import re

import jupytext

import ppl_sgp

DOCS = pathlib.Path(__file__).parent.resolve()
EXAMPLES = DOCS.parent / "examples"
#: Pages whose text lies outside this folder. The file of that name here is what GitHub shows: a link to the text.
TEXTS = {"changelog": DOCS.parent / "CHANGELOG.md", "measurements": DOCS.parent / "benchmarks" / "README.md"}
#: Classes whose members are not repeated with each class derived from them.
DOCUMENTED_ELSEWHERE = [
    *("Basis", "Kernel", "Spectral", "WeightPrior", "BasisGP", "ReweightedBasis"),
    *("Distribution", "CustomGibbs", "MCMCKernel", "Trace_ELBO", "ELBO", "BaseException", "tuple"),
]

project = "ppl_sgp"
release = version = ppl_sgp.__version__
# `doctest` is for `.. doctest::`.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx_copybutton"]
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = project
html_show_copyright = False
highlight_language = "none"
nitpicky = True  # a reference that leads nowhere is a warning
nitpick_ignore = [  # what docstrings mention and users do not import
    ("py:class", "ppl_sgp.statistics.moments.Moments"),
    ("py:func", "ppl_sgp.kernels.hyperprior_scales.lengthscale_prior"),
    ("py:attr", "elbo_trace"),
]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_timeout = 900  # seconds for a notebook
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # progress bars
nb_merge_streams = True

autodoc_default_options = {
    "members": True,
    "inherited-members": ", ".join(DOCUMENTED_ELSEWHERE),
    "member-order": "bysource",
    "special-members": "__call__",
}
autodoc_inherit_docstrings = False  # NumPyro's methods have pages of their own
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # docstrings give shapes and units, which types do not


def write_notebooks(app):
    """Notebooks from the scripts of ``examples/``, in this folder: Sphinx reads nothing outside it."""
    (DOCS / "examples").mkdir(exist_ok=True)
    for script in EXAMPLES.glob("*.py"):
        notebook = jupytext.read(script, fmt="py:percent")
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.metadata["language_info"] = {"name": "python"}
        jupytext.write(notebook, DOCS / "examples" / f"{script.stem}.ipynb")


def read_page(app, page, source):
    """Put the texts from outside in their places, and turn links between files into links within the site."""
    text = TEXTS.get(page)
    if text is not None:
        app.env.note_dependency(str(text))
        source[0] = text.read_text(encoding="utf-8")
    here = (DOCS / page).parent
    folder = text.parent if text else EXAMPLES if here.name == "examples" else here
    pages = {path: DOCS / f"{name}.md" for name, path in TEXTS.items()}
    pages |= {script: DOCS / "examples" / f"{script.stem}.ipynb" for script in EXAMPLES.glob("*.py")}

    def within_site(link):
        path = (folder / link["path"]).resolve()
        return f"]({os.path.relpath(pages.get(path, path), here)}{link['anchor']})"

    source[0] = re.sub(r"\]\((?P<path>[\w./-]+\.\w+)(?P<anchor>(#[^)]*)?)\)", within_site, source[0])


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", write_notebooks)
    app.connect("source-read", read_page)
