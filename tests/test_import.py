"""What ``import ppl_sgp`` does, and what it must leave alone."""

import inspect
import pathlib
import subprocess
import sys

import pytest

import ppl_sgp

ROOT = pathlib.Path(__file__).parent.parent

IMPORT_AND_COMPARE = """
import jax
import numpyro

before = dict(jax.config.values)
import ppl_sgp

changed = {name: value for name, value in jax.config.values.items() if before.get(name) != value}
assert not changed, f"importing ppl_sgp changed JAX's configuration: {changed}"
assert not jax.live_arrays(), f"importing ppl_sgp left arrays on the device: {jax.live_arrays()}"
"""


@pytest.mark.slow
@pytest.mark.float64_only  # processes of their own choose their precision
def test_import_is_quiet_and_leaves_jax_alone():
    # A process of its own: in this one JAX is configured and in use already.
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_AND_COMPARE], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == run.stderr == ""


def test_public_names_are_listed_once():  # ruff keeps them sorted
    assert len(ppl_sgp.__all__) == len(set(ppl_sgp.__all__))


@pytest.mark.parametrize("name", ppl_sgp.__all__)
def test_public_name_resolves_and_is_documented(name):
    thing = getattr(ppl_sgp, name)
    if inspect.ismodule(thing) or callable(thing):
        assert (thing.__doc__ or "").strip(), f"ppl_sgp.{name} has no docstring"
        # What @dataclass writes for a class without a docstring of its own.
        assert not thing.__doc__.startswith(f"{name}("), f"ppl_sgp.{name} has only a generated docstring"


def test_installed_package_announces_its_types():
    assert (pathlib.Path(ppl_sgp.__file__).parent / "py.typed").is_file()
