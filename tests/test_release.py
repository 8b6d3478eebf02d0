"""What is uploaded: one version, links that lead somewhere, a wheel and a source distribution with all they need."""

from __future__ import annotations

import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile

import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # about files

ROOT = pathlib.Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESS = "https://example.org/ppl_sgp"


def test_the_version_is_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", sgp.__version__)
    assert "version" in SETTINGS["project"]["dynamic"] and "version" not in SETTINGS["project"]
    assert "version:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8").replace("cff-version:", "")
    if "dev" not in sgp.__version__:
        assert f"## [{sgp.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_extras_that_messages_name_exist():
    named = set()
    for path in (ROOT / "ppl_sgp").rglob("*.py"):
        named |= set(re.findall(r'optional_import\(\s*"[\w.]+",\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert named == {"dask", "parquet", "plots"} and named <= set(SETTINGS["project"]["optional-dependencies"])
    told = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert all(f"`{extra}`" in told for extra in SETTINGS["project"]["optional-dependencies"])


def test_the_oldest_versions_are_documented():
    told = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    for requirement in SETTINGS["project"]["dependencies"]:
        name, oldest = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        assert re.search(rf"^\| {name}\b.*\| {re.escape(oldest)}\b", told, flags=re.MULTILINE), requirement


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What ``make dist`` makes, by suffix, the wheel from the source distribution; and the same with an address set."""
    pytest.importorskip("build")  # of an environment without the extra `test`
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "ppl_sgp", copy / "ppl_sgp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    text = (copy / "pyproject.toml").read_text(encoding="utf-8")
    text, replaced = re.subn('^repository = ".*"', f'repository = "{ADDRESS}"', text, flags=re.MULTILINE)
    assert replaced == 1
    (copy / "pyproject.toml").write_text(text, encoding="utf-8")
    files = {}
    for name, source in (("own", ROOT), ("with address", copy)):
        out = tmp_path_factory.mktemp("dist")
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        files[name] = {path.suffix: path for path in out.iterdir()}
    return files


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


@pytest.mark.end_to_end
def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built["own"][".whl"]) as archive:
        names = set(archive.namelist())
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "ppl_sgp").rglob("*.py")} | {"ppl_sgp/py.typed"}
    assert {name for name in names if ".dist-info/" not in name} == package
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.end_to_end
def test_metadata(built):
    told = metadata(built["own"][".whl"])
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("ppl_sgp", sgp.__version__, ">=3.11")
    assert told["License-Expression"] == "Apache-2.0"
    address = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    assert (told.get_all("Project-URL") or [""])[0] == (f"Repository, {address}" if address else "")
    assert set(told.get_all("Provides-Extra")) == set(SETTINGS["project"]["optional-dependencies"])
    with_address = metadata(built["with address"][".whl"])
    assert f"Repository, {ADDRESS}" in with_address.get_all("Project-URL")
    for message in (told, with_address):
        links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", message.get_payload(), flags=re.S | re.M))
        assert all(re.match("https?:|#", link) for link in links)
    assert f"]({ADDRESS}/blob/v{sgp.__version__}/docs/tables.md)" in with_address.get_payload()


@pytest.mark.end_to_end
def test_the_source_distribution_has_what_the_tests_need(built):
    with tarfile.open(built["own"][".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ["README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "pyproject.toml", "hatch_build.py"]
    wanted += ["tests/conftest.py", "docs/index.md", "examples/quickstart.py", "benchmarks/common.py"]
    assert set(wanted) <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "docs/_build"))]


@pytest.mark.end_to_end
def test_the_index_would_take_them(built):
    pytest.importorskip("twine")
    files = [path for kinds in built.values() for path in kinds.values()]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.end_to_end
def test_the_wheel_is_imported_in_a_fresh_environment(built, tmp_path):
    """Its dependencies are those of this environment, and nothing is downloaded."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XLA"))}

    def run(*arguments):
        done = subprocess.run(
            [python, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "pip", "install", "--no-index", "--no-deps", "--no-cache-dir", built["own"][".whl"])
    own = pathlib.Path(run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own / "dependencies.pth").write_text(
        sysconfig.get_path("purelib")
    )  # a path: what is in its .pth files is not read
    code = "import ppl_sgp, importlib.metadata as m; print(ppl_sgp.__version__, m.version('ppl_sgp'), ppl_sgp.__file__)"
    version, installed, file = run("-c", code).split()
    assert version == installed == sgp.__version__ and pathlib.Path(file).is_relative_to(own)
