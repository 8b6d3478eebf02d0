"""FourierBasis: features, requests, proposals from data."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import lengthscale_prior
from tests.builders import X64, by_lane

SE = sgp.SquaredExponential
METHODS = ("iid", "orthogonal", "quasi_random")


@pytest.fixture(params=METHODS)
def basis(request, key):
    return sgp.FourierBasis.sample(key, SE([0.5, 2.0]), 24, 2, request.param, centre=[1.0, -3.0])


# Features ------------------------------------------------------------------------------------------------------------


def test_features_are_cosines_and_sines_of_centred_inputs(basis, rng):
    X = rng.standard_normal((9, 2))
    expected = np.empty((9, 24))
    for i, x in enumerate(X):
        for j, frequency in enumerate(basis.frequencies):
            phase = 2 * np.pi * sum(f * (a - c) for f, a, c in zip(frequency, x, [1.0, -3.0], strict=True))
            expected[i, j], expected[i, 12 + j] = np.cos(phase), np.sin(phase)
    assert (basis.num_features, basis.input_dim) == (24, 2)
    features = basis.host_features(X)
    assert features.dtype == np.float64
    np.testing.assert_allclose(features, expected, atol=1e-13)


def test_features_of_a_row_do_not_depend_on_the_others(basis, rng):
    X = rng.standard_normal((300, 2))
    everything = basis.host_features(X)
    for rows in (slice(0, 1), slice(17, 20), slice(0, 300, 7)):
        np.testing.assert_allclose(basis.host_features(X[rows]), everything[rows], atol=1e-12)
        np.testing.assert_allclose(basis(X[rows]), everything[rows], atol=by_lane(1e-12, 1e-5))
    np.testing.assert_allclose(basis.host_features(1e6 * X)[:1], basis.host_features(1e6 * X[:1]), atol=1e-8)


def test_features_in_jax_follow_the_dtype_of_the_inputs(basis, rng):
    X = rng.standard_normal((5, 2))
    for dtype in (jnp.float32, jnp.float64) if X64 else (jnp.float32,):
        features = jax.jit(basis.__call__)(jnp.asarray(X, dtype))
        assert features.dtype == dtype
        # Phases of order 10 in 7 digits.
        np.testing.assert_allclose(features, basis.host_features(X), atol=1e-12 if dtype == jnp.float64 else 2e-5)
    assert basis(jnp.ones((5, 2), int)).dtype == jnp.result_type(float)
    assert basis([[0, 1]]).shape == (1, 24)


def test_host_features_are_float64_whatever_comes(basis):
    X = np.array([[0.1, 0.2]], dtype=np.float32)
    assert basis.host_features(X).dtype == np.float64
    np.testing.assert_array_equal(basis.host_features(X), basis.host_features(X.astype(np.float64)))


@pytest.mark.float64_only
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_features_of_the_pass_are_exact_in_turns(single):
    """Of phases that are exact in turns, beside decimals of π: also half turns, many turns and tiny ones."""
    turns = np.concatenate([np.linspace(-3, 3, 4097), [np.nextafter(0.5, 0), 1e-300, 12345.25, -(2.0**40) - 0.125]])
    basis = sgp.FourierBasis(np.array([[1.0]]), np.zeros(1), np.zeros(1), (SE(1.0),))
    filled = np.full((len(turns), 2), np.nan)
    basis.fill_features(turns[:, None], filled, single)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    reduced = 2 * pi * (turns - np.rint(turns)).astype(np.longdouble)
    expected = np.stack([np.cos(reduced), np.sin(reduced)], axis=1)
    assert np.max(np.abs(filled - expected)) < (1.5e-7 if single else 1.3e-15)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), r"FourierBasis: `X` must have shape \(n, 2\); got \(3,\).*X\[:, None\]"),
        (np.ones((3, 1)), r"FourierBasis: `X` must have shape \(n, 2\); got \(3, 1\).*made for 2 inputs"),
        (np.ones((1, 3, 2)), r"FourierBasis: `X` must have shape \(n, 2\)"),
        (1.0, r"FourierBasis: `X` must have shape \(n, 2\); got \(\)"),
    ],
)
def test_inputs_of_the_wrong_shape_are_refused(basis, X, message):
    for call in (basis, basis.host_features):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            call(X)


# Requests ------------------------------------------------------------------------------------------------------------


def draw(seed=0, kernel=None, num_features=6, input_dim=2, **options):
    kernel = SE(1.0) if kernel is None else kernel
    return sgp.FourierBasis.sample(jax.random.key(seed), kernel, num_features, input_dim, **options)


@pytest.mark.parametrize("method", METHODS)
def test_the_key_decides(method):
    assert np.array_equal(draw(0, method=method).frequencies, draw(0, method=method).frequencies)
    assert not np.allclose(draw(0, method=method).frequencies, draw(1, method=method).frequencies)
    legacy = sgp.FourierBasis.sample(jax.random.PRNGKey(0), SE(1.0), 6, 2, method)
    np.testing.assert_array_equal(legacy.frequencies, draw(0, method=method).frequencies)


IN_THE_OTHER_LANE = """
import pickle, sys
import jax
from tests.bases.test_fourier import bases_of_one_key

sys.stdout.buffer.write(pickle.dumps((jax.config.jax_enable_x64, bases_of_one_key())))
"""


def bases_of_one_key():
    """Bases, drawn and from data, as dictionaries of what decides whether they are the same."""
    key, X = jax.random.key(5), np.linspace(0.1, 3, 30)[:, None]
    kernels = [SE(0.3), sgp.Matern32(0.7) + SE(2.0, 0.5)]
    bases = {method: sgp.FourierBasis.sample(key, kernels, 20, 1, method) for method in METHODS}
    bases["from_data"] = sgp.FourierBasis.from_data(key, X, 20, num_kernels=3)
    return {
        name: {"frequencies": b.frequencies, "log_proposal": b.log_proposal, "centre": b.centre}
        for name, b in bases.items()
    }


@pytest.mark.slow
def test_equal_keys_give_equal_bases_in_any_precision():
    # Statistics of one basis may be added, and whether it is one is decided bit by bit.
    environment = {**os.environ, "JAX_ENABLE_X64": "0" if X64 else "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", IN_THE_OTHER_LANE]
    run = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    assert run.returncode == 0, run.stderr.decode()
    other_x64, theirs = pickle.loads(run.stdout)
    assert other_x64 != X64
    for name, ours in bases_of_one_key().items():
        for field, value in ours.items():
            assert value.dtype == theirs[name][field].dtype == np.float64
            np.testing.assert_array_equal(value, theirs[name][field], err_msg=f"{name}: {field}")


BAD = {
    "odd": (dict(num_features=7), "`num_features` must be an even number.*got 7"),
    "zero": (dict(num_features=0), "`num_features` must be an integer of 2 or more; got 0"),
    "negative": (dict(num_features=-2), "`num_features` must be .*got -2"),
    "fraction": (dict(num_features=6.5), "`num_features` must be .*got 6.5"),
    "float": (dict(num_features=6.0), "`num_features` must be .*integer|`num_features` must be an even number"),
    "input_dim": (dict(input_dim=0), "`input_dim` must be an integer of 1 or more; got 0"),
    "method": (dict(method="sobol"), "`method` must be one of 'iid', 'orthogonal', 'quasi_random'; got 'sobol'"),
    "no kernels": (dict(kernel=[]), "`kernel_or_kernels` must be .*non-empty.*got nothing"),
    "no kernel": (dict(kernel=[SE(1.0), 2.0]), "`kernel_or_kernels` must be .*got SquaredExponential, float"),
    "class": (dict(kernel=[SE]), "`kernel_or_kernels` must be one kernel"),
    "lengthscales": (dict(kernel=SE([1.0, 2.0, 3.0])), "`lengthscale` has 3 entries but there are 2 inputs"),
    "centre": (dict(centre=np.zeros(3)), r"`centre` must have shape \(2,\); got \(3,\)"),
    "scalar centre": (dict(centre=1.0), r"`centre` must have shape \(2,\); got \(\)"),
    "NaN centre": (dict(centre=[0.0, np.nan]), "`centre` must be finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_refused(name):
    options, message = BAD[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        draw(**options)


@pytest.mark.parametrize("bad", [0, None, np.zeros(2, np.uint32), jnp.zeros(2)])
def test_bad_keys_are_refused(bad):
    with pytest.raises(ValueError, match=r"`key` must be a random key of JAX, such as `jax.random.key\("):
        sgp.FourierBasis.sample(bad, SE(1.0), 6, 1)


def test_a_weight_prior_needs_a_kernel(basis):
    with pytest.raises(ValueError, match=r"weight_prior needs a kernel such as .*got float"):
        basis.weight_prior(1.0)


# From data -----------------------------------------------------------------------------------------------------------


def test_from_data_is_indifferent_to_a_shift(key, rng):
    X = rng.random((500, 2)) * [1.0, 5.0]
    bases = [sgp.FourierBasis.from_data(key, Z, 60) for Z in (X, X + 2000)]
    np.testing.assert_allclose(bases[1].centre, X.mean(axis=0) + 2000, rtol=1e-14)
    # Subtracting 2000 costs 2000·2e-16, which frequencies of up to 100 cycles multiply.
    np.testing.assert_allclose(bases[1].host_features(X + 2000), bases[0].host_features(X), atol=1e-9)


@pytest.mark.parametrize("input_dim", [1, 2])
@pytest.mark.float64_only
def test_from_data_covers_the_default_lengthscale_prior(input_dim, key, rng):
    X = rng.standard_normal((200, input_dim)) * 3
    basis = sgp.FourierBasis.from_data(key, X, 2000)
    assert len(basis.proposal) == 64 and basis.num_features == 2000
    median, spread = lengthscale_prior(np.std(X, axis=0))
    few = X[:40]
    for z in (-1.5, 0.0, 1.5):
        kernel = SE(np.asarray(median) * np.exp(spread * z))
        variance = np.exp(2 * np.asarray(basis.weight_prior(kernel).log_scale, np.float64))
        Phi = basis.host_features(few)
        effective = float(basis.effective_features(kernel))
        # Monte Carlo error of the kernel for that many features, five standard deviations.
        np.testing.assert_allclose((Phi * variance) @ Phi.T, kernel(few), atol=5 * effective**-0.5)
        assert effective > 50


@pytest.mark.parametrize("constant", [0.0, 0.1, 2000.1])
def test_an_input_that_never_varies_gets_the_scale_of_the_others(constant, key):
    X = np.stack([np.linspace(0, 1, 30), np.full(30, constant)], axis=1)
    basis = sgp.FourierBasis.from_data(key, X, 10)
    lengthscales = np.array([kernel.lengthscale for kernel in basis.proposal])
    # 64 strata of a log-normal of log standard deviation 1 have a median that is known to a tenth.
    assert np.log(np.median(lengthscales[:, 1]) / (np.std(X[:, 0]) / 2)) == pytest.approx(0, abs=0.1)


def test_from_data_takes_kernel_classes_and_their_shape(key):
    X = np.linspace(0, 1, 50)[:, None]
    basis = sgp.FourierBasis.from_data(key, X, 10, sgp.RationalQuadratic, num_kernels=3, method="iid", alpha=1.5)
    assert [kernel.alpha for kernel in basis.proposal] == [1.5] * 3


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(5), r"from_data: `X` must have shape \(n, d\); got \(5,\).*X\[:, None\]"),
        (
            np.array([[1.0], [np.nan]]),
            "from_data: `X` has 1 of 2 rows.*not finite.*drop or impute",
        ),
        (np.ones((0, 2)), "from_data: `X` has no rows"),
    ],
)
def test_from_data_refuses_bad_inputs(X, message, key):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.FourierBasis.from_data(key, X, 10)


@pytest.mark.parametrize("num_kernels", [0, -1])
def test_from_data_needs_kernels(num_kernels, key):
    with pytest.raises(ValueError, match="num_kernels|kernel_or_kernels"):
        sgp.FourierBasis.from_data(key, np.ones((3, 1)), 10, num_kernels=num_kernels)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e13, 1e15])
def test_far_from_the_centre_pass_and_prediction_see_the_same_features(basis, far):
    X = far + np.linspace(0, 1, 7)[:, None] * [1.0, 2.0]
    filled = np.empty((7, basis.num_features))
    basis.fill_features(X, filled)
    np.testing.assert_array_equal(basis.host_features(X), filled)
    if X64:  # a product of two inputs and two frequencies may be rounded in another order
        np.testing.assert_allclose(basis(X), filled, atol=1e-14 + 1e-14 * far)
