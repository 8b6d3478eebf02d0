"""Examples and the README run as a user runs them: in a process of their own, warnings shown to nobody but us."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def run(arguments, cwd):
    # One lane is enough: the scripts choose their precision themselves.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "XLA_FLAGS": ""}
    environment.pop("JAX_ENABLE_X64", None)
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::FutureWarning:arviz", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.float64_only  # the scripts choose their precision themselves
def test_quickstart_writes_what_it_promises(tmp_path):
    small = ["--num-features", "30", "--num-draws", "25", "--num-chains", "2", "--output", "out"]
    # Few features and draws earn warnings from us and from ArviZ, which the full run does not give.
    finished = run(["-W", "ignore::UserWarning", str(ROOT / "examples" / "quickstart.py"), *small], tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "2106 observations" in re.sub(r"\s+", " ", finished.stdout)
    assert (tmp_path / "out" / "co2.nc").stat().st_size > 10_000
    assert (tmp_path / "out" / "co2.png").read_bytes().startswith(b"\x89PNG")


README_CHECK = """
point = dict(lengthscale=1.0, amplitude=1.0, noise_scale=0.3)
assert np.isfinite(numpyro.infer.util.log_density(model, (stats,), {}, point)[0])
"""
PAGES = {
    "README.md": (2, README_CHECK),
    "docs/choosing.md": (4, ""),
    "docs/migration.md": (3, ""),
    "docs/quickstart.md": (10, ""),
    "docs/tall_data.md": (6, ""),
}


@pytest.mark.float64_only  # the scripts choose their precision themselves
@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs_and_prints_what_it_says(page, tmp_path):
    least, check = PAGES[page]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= least
    (tmp_path / "page.py").write_text("\n".join(blocks) + check, encoding="utf-8")
    finished = run([str(tmp_path / "page.py")], tmp_path)
    assert finished.returncode == 0, finished.stderr
    said = re.findall(r"^(?:print\(.*)?\)  # (.*)$", "\n".join(blocks), re.MULTILINE)
    if page.startswith("docs"):
        assert finished.stdout.splitlines() == said
