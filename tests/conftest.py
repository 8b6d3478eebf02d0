"""The lanes every test runs in.

``make test`` runs the suite twice, with ``JAX_ENABLE_X64=1`` and with ``JAX_ENABLE_X64=0``. In both, JAX refuses to
mix dtypes or to broadcast over a missing axis silently, four CPU devices stand in for a machine that can run chains in
parallel, and any warning is an error. ``make test-defaults`` runs what calls other packages with JAX's own settings, as
users do.
"""

import contextlib
import os
import pathlib
import signal

import jax
import jaxlib
import numpy as np
import pytest
from jax._src.interpreters import mlir

#: Whether tests run with the settings that users have.
DEFAULTS = os.environ.get("TEST_WITH_DEFAULTS") == "1"

# Read when JAX starts its backend, which no import does. Most of the suite's time is compilation, which the lowest
# level of optimisation shortens by a third, and the older emitters of fused loops by as much again: JAX 0.10 has both
# kinds, and a later one refuses the flag.
FLAGS = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]
if not DEFAULTS:
    FLAGS += ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    FLAGS += ["--xla_cpu_parallel_codegen_split_count=1"]
    if jaxlib.__version__.startswith("0.10."):
        FLAGS += ["--xla_cpu_use_fusion_emitters=false"]
os.environ["XLA_FLAGS"] = " ".join(FLAGS).strip()
os.environ.setdefault("MPLBACKEND", "Agg")

if not DEFAULTS:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")

# In the background of a shell interrupts are ignored, and tests of them would fail.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _without_threads(make_context):
    """``make_context`` for MLIR contexts that use one thread, in which lowering takes as long as in a new process.

    JAX keeps every context in which it lowered a program, and MLIR looks through what each of them caches for each
    thread whenever a new one is used: 28 ms a program became 140 after 3,000 programs, half of the suite's time.
    """

    def make():
        context = make_context()
        context.enable_multithreading(False)
        return context

    return make


mlir.make_ir_context = _without_threads(mlir.make_ir_context)


@contextlib.contextmanager
def _default_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def pytest_report_header():
    if jax.config.jax_enable_x64:
        return "lane: float64, with JAX's defaults" if DEFAULTS else "lane: float64"
    return "lane: float32 (tests marked float64_only are deselected)"


def pytest_collection_modifyitems(config, items):
    if jax.config.jax_enable_x64:
        return
    deselected = [item for item in items if item.get_closest_marker("float64_only")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("float64_only")]


#: Memory maps of a process above which its compiled programs are let go. Linux allows 65,530, a test leaves some
#: twenty, and JAX ends in a segmentation fault where there are no more.
MOST_MAPS = 20_000


@pytest.fixture(scope="module", autouse=True)
def _programs_are_let_go():
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def relaxed():
    """Context manager of JAX's default promotion rules; for fixtures wider than one test.

    NumPyro is not written for the strict rules: HMC and NUTS multiply integer step counters by floats, and
    ``sample(key, (s,))`` of a distribution with a vector location broadcasts (s, m) with (m,), which stops SVI guides
    and ``init_to_median``. Run those, and nothing of our own that can be tested without them, inside it.
    """
    return _default_promotion


@pytest.fixture
def relaxed_promotion(relaxed):
    """JAX's default promotion rules during one test; the marker of the same name asks for it too."""
    with relaxed():
        yield


@pytest.fixture(autouse=True)
def _promotion_rules(request):
    if request.node.get_closest_marker("relaxed_promotion"):
        request.getfixturevalue("relaxed_promotion")


@pytest.fixture(scope="session")
def x64():
    """Whether this is the float64 lane."""
    return bool(jax.config.jax_enable_x64)


@pytest.fixture
def rng():
    """A NumPy generator in the same state for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def key():
    """The same JAX key for every test."""
    return jax.random.key(0)
