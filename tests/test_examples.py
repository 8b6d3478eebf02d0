"""Examples and the README run as a user runs them: in a process of their own, warnings shown to nobody but us."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.end_to_end

ROOT = pathlib.Path(__file__).parent.parent


def run(arguments, cwd):
    # One lane is enough: the scripts choose their precision themselves. At small size they mostly compile.
    flags = "--xla_backend_optimization_level=0"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "XLA_FLAGS": flags}
    environment.pop("JAX_ENABLE_X64", None)
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::FutureWarning:arviz", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


#: Sizes at which a notebook takes seconds: they replace lines of its cell of parameters.
NOTEBOOKS = {
    "quickstart": {"num_features": 30, "num_draws": 25, "num_chains": 2},
    "choosing_a_basis": {"sizes": (30,), "num_keys": 1, "chosen_size": 30, "num_draws": 60, "num_chains": 2},
    "exact_and_sparse": {"num_rows": 100, "sizes": (2, 4)},
    "seasonal_series": {"num_functions": 20, "num_draws": 50, "num_chains": 2},
    "spatial": {"sizes": (6, 8), "thinning": 4, "num_draws": 100, "num_chains": 2},
    "gappy_weather": {"num_days": 8, "num_draws": 25, "num_chains": 2},
    "type1_vs_type2": {"num_sets": 4, "num_particles": 200, "many_rows": 50, "num_draws": 50, "num_chains": 2},
    "classification_and_counts": {
        **{"class_rows": 200, "class_features": 16, "count_rows": 200, "count_features": 8},
        **{"num_draws": 30, "num_chains": 2},
    },
    "delayed_flights": {"max_rows": 4000, "joint_features": 10, "num_draws": 15, "num_chains": 2},
    "hourly_departures": {"num_days": 30, "day_functions": 12, "num_draws": 15, "num_chains": 2},
    "ragged_groups": {"num_rows": 30_000, "functions": 5, "num_draws": 25, "num_chains": 2},
    "missing_outputs": {"num_days": 8, "functions": 40, "num_draws": 25, "num_chains": 2},
    "space_time": {"num_days": 6, "num_draws": 20, "num_chains": 2},
    "relevance_vectors": {"num_rows": 80, "num_centres": 10, "num_draws": 30, "num_chains": 2},
    "discrete_weights": {
        **{"functions_each_way": 8, "thinning": 20, "transect_features": 20, "num_draws": 100, "num_chains": 2}
    },
    "calibration": {
        **{"num_simulations": 20, "num_warmup": 20, "thinning": 1, "num_features": 20, "every": 20},
        **{"num_draws": 30, "num_chains": 2},
    },
}


def small(script, sizes):
    """The text of a notebook with other parameters."""
    before, mark, after = script.read_text(encoding="utf-8").partition('# %% tags=["parameters"]\n')
    cell, following, rest = after.partition("\n# %%")
    for name, value in sizes.items():
        cell, count = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value!r}", cell, flags=re.MULTILINE)
        assert count == 1, f"{script.name} has no parameter {name}"
    return before + mark + cell + following + rest


def test_every_notebook_is_run():
    assert set(NOTEBOOKS) == {script.stem for script in (ROOT / "examples").glob("*.py")}


@pytest.mark.float64_only  # the scripts choose their precision themselves
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run_and_write_what_they_promise(name, tmp_path):
    text = small(ROOT / "examples" / f"{name}.py", NOTEBOOKS[name])
    (tmp_path / "notebook.py").write_text(text, encoding="utf-8")
    # Few features and draws earn warnings from us and from ArviZ, which the full run does not give.
    finished = run(["-W", "ignore::UserWarning", "notebook.py"], tmp_path)
    assert finished.returncode == 0, finished.stderr
    promised = re.findall(r'output / "([^"]+)"', text)
    assert promised
    for file in promised:
        content = (tmp_path / "examples-output" / file).read_bytes()
        assert len(content) > 10_000
        assert content.startswith(b"\x89PNG") or not file.endswith(".png")


README_CHECK = """
point = dict(lengthscale=1.0, amplitude=1.0, noise_scale=0.3)
assert np.isfinite(numpyro.infer.util.log_density(model, (stats,), {}, point)[0])
"""
PAGES = {
    "README.md": (2, README_CHECK),
    "docs/choosing.md": (4, ""),
    "docs/extending.md": (3, ""),
    "docs/gibbs.md": (2, ""),
    "docs/grids.md": (6, ""),
    "docs/likelihoods.md": (2, ""),
    "docs/migration.md": (3, ""),
    "docs/quickstart.md": (10, ""),
    "docs/structured_models.md": (8, ""),
    "docs/tables.md": (6, ""),
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
