"""The documentation: public names are in the API, links lead somewhere, and Sphinx has nothing to complain about."""

import collections
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # about files

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for folder in (ROOT, DOCS, ROOT / "benchmarks") for page in folder.glob("*.md"))
MODULES = {"ppl_sgp": sgp, "ppl_sgp.models": sgp.models, "ppl_sgp.direct": sgp.direct, "ppl_sgp.plots": sgp.plots}
MODULES["ppl_sgp.likelihoods"] = sgp.likelihoods
MODULES["ppl_sgp.stochastic"] = sgp.stochastic


def prose(page):
    """The text of a page without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page):
    """Targets of the links to files and headings; code in a line has none."""
    text = re.sub(r"`[^`\n]*`", "code", prose(page))
    found = re.findall(r"\]\(([^)\s]+)|^\[[^\]]+\]: +(\S+)", text, flags=re.MULTILINE)
    targets = [inline or reference for inline, reference in found]
    return [target for target in targets if not re.match("[a-z]+:", target)]


def anchors(page):
    """What GitHub calls the headings of a page."""
    seen, result = collections.Counter(), set()
    for heading in re.findall(r"^#{1,6} +(.+)$", prose(page), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        result.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return result


def broken(page):
    """Links of a page to files or headings that are not there."""
    result = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(ROOT) or not file.exists():
            result.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            result.append(target)
    return result


def public(module):
    """The names that a module lists, or, if it has no list, those it imports."""
    imported = [name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)]
    return getattr(module, "__all__", imported)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_in_the_api(module):
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.rst"))
    listed = re.findall(r"^\.\. auto\w+:: (\S+)$", text, flags=re.MULTILINE)
    names = [name for name in public(MODULES[module]) if not inspect.ismodule(getattr(MODULES[module], name))]
    assert len(names) > 10
    missing = [name for name in names if not any(re.fullmatch(rf"{module}\.(.+\.)?{name}", entry) for entry in listed)]
    assert not missing, f"add {missing} of {module} to a page of docs/api"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_broken_links_are_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path.resolve())
    (tmp_path / "there.md").write_text("# A *title*: with `code`\n\n## Twice\n\n## Twice\n\n```sh\n# none\n```\n")
    page = tmp_path.resolve() / "page.md"
    page.write_text(
        "# Here\n[1](there.md#a-title-with-code) [2](there.md#twice-1) [3](#here) [4](https://a.b) `[5](no.md)`\n"
        "[a](no.md) [b](there.md#twice-2) [c](#there) [d](there.md#none) [e](/etc/hosts)\n"
        "```python\n[f](no.md)\n```\n"
    )
    assert broken(page) == ["no.md", "there.md#twice-2", "#there", "there.md#none", "/etc/hosts"]


@pytest.mark.end_to_end
def test_sphinx_has_nothing_to_complain_about(tmp_path):
    for package in ("sphinx", "myst_nb", "furo"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[docs]'")
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"),
            *("-D", "nb_execution_mode=off"),  # tests/test_examples.py runs the notebooks
            *(str(DOCS), str(tmp_path)),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    # The pages whose text is elsewhere, and the API, are more than their titles.
    assert 'id="the-pass"' in (tmp_path / "measurements.html").read_text(encoding="utf-8")
    assert "Unreleased" in (tmp_path / "changelog.html").read_text(encoding="utf-8")
    assert 'id="ppl_sgp.FourierBasis.weight_prior"' in (tmp_path / "api" / "bases.html").read_text(encoding="utf-8")
