"""Periodic, linear, polynomial, arc-cosine and arc-sine kernels against loops and simulated networks."""

from __future__ import annotations

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import erf
from scipy.stats import norm, qmc

import ppl_sgp as sgp
from ppl_sgp.kernels import ArcCosine, ArcSine, Linear, Periodic, Polynomial, Product, SquaredExponential, Sum
from tests.builders import by_lane

DTYPE, RTOL = by_lane(np.float64, np.float32), by_lane(1e-12, 2e-5)
KERNELS = {
    "periodic": lambda: Periodic(1.7, 0.8, 1.3),
    "linear": lambda: Linear(1.3, 0.7),
    "linear, homogeneous": lambda: Linear(1.3),
    "polynomial": lambda: Polynomial(3, 0.8, 1.1),
    "arc-cosine 0": lambda: ArcCosine(0, 1.3, 0.8, 0.5),
    "arc-cosine 1": lambda: ArcCosine(1, 1.3, 0.8, 0.5),
    "arc-cosine 2": lambda: ArcCosine(2, 1.3, 0.8, 0.5),
    "arc-sine": lambda: ArcSine(1.3, 0.8, 0.5),
    "arc-sine, odd": lambda: ArcSine(1.3, 0.8, 0.0),
}
everything = pytest.mark.parametrize("name", KERNELS)


def value(kernel, x, x2):
    """The textbook formula at one pair of points."""
    if isinstance(kernel, Periodic):
        sine = math.sin(math.pi * (x[0] - x2[0]) / kernel.period)
        return kernel.amplitude**2 * math.exp(-2 * sine**2 / kernel.lengthscale**2)
    scale = kernel.weight_scale
    u, u2 = (np.append(np.asarray(scale) * np.asarray(point, np.float64), kernel.bias) for point in (x, x2))
    if isinstance(kernel, ArcSine):
        sine = 2 * float(u @ u2) / math.sqrt((1 + 2 * float(u @ u)) * (1 + 2 * float(u2 @ u2)))
        return kernel.amplitude**2 * 2 / math.pi * math.asin(sine)
    if not isinstance(kernel, ArcCosine):
        return float(u @ u2) ** getattr(kernel, "degree", 1)
    lengths = np.linalg.norm(u) * np.linalg.norm(u2)
    angle = math.acos(min(1.0, float(u @ u2) / lengths))
    sine, cosine, rest = math.sin(angle), math.cos(angle), math.pi - angle
    J = [rest, sine + rest * cosine, 3 * sine * cosine + rest * (1 + 2 * cosine**2)][kernel.order]
    return kernel.amplitude**2 / math.pi * lengths**kernel.order * J


def points(kernel, n=5, seed=0):
    d = 1 if isinstance(kernel, Periodic) else 2
    return np.random.default_rng(seed).normal(size=(n, d)).astype(DTYPE)


# Values ---------------------------------------------------------------------------------------------------------------


@everything
def test_values_match_loops(name):
    kernel = KERNELS[name]()
    X, X2 = points(kernel), points(kernel, 3, seed=1)
    want = [[value(kernel, x, x2) for x2 in X2] for x in X]
    np.testing.assert_allclose(kernel(X, X2), want, rtol=RTOL, atol=RTOL)
    # The textbook's arc cosine has half the digits at coincident points.
    np.testing.assert_allclose(
        kernel(X), [[value(kernel, x, z) for z in X] for x in X], rtol=RTOL, atol=by_lane(1e-7, 1e-4)
    )
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)), rtol=RTOL)


@pytest.mark.parametrize(
    "make", [Linear, lambda s: Polynomial(2, s), lambda s: ArcCosine(1, 1.5, s), lambda s: ArcSine(1.5, s)]
)
@pytest.mark.float64_only
def test_one_scale_an_input(make):
    kernel, X = make([0.5, 2.0]), points(make(1.0), 4)
    want = [[value(kernel, x, x2) for x2 in X] for x in X]
    np.testing.assert_allclose(kernel(X), want, rtol=RTOL, atol=by_lane(1e-7, 1e-4))
    assert len(jax.tree.leaves(kernel)) == len(jax.tree.leaves(make(1.0)))


@everything
@pytest.mark.float64_only
def test_matrices_are_positive_semi_definite(name):
    kernel = KERNELS[name]()
    K = np.asarray(kernel(points(kernel, 20)), np.float64)
    np.testing.assert_allclose(K, K.T, rtol=10 * RTOL, atol=10 * RTOL)
    assert np.linalg.eigvalsh(K)[0] > -by_lane(1e-12, 1e-5) * np.trace(K)


@pytest.mark.parametrize("order", [0, 1, 2, "arc-sine"])
def test_networks_of_many_units(order):
    scale, bias, X = [0.8, 1.5], 0.5, np.array([[0.3, -1.0], [2.0, 0.4], [-0.7, -0.2]], DTYPE)
    sigmoid = order == "arc-sine"
    kernel = ArcSine(1.3, scale, bias) if sigmoid else ArcCosine(order, 1.3, scale, bias)
    weights = norm.ppf(qmc.Sobol(3, seed=0).random(2**16))
    inputs = weights @ np.column_stack([np.full(3, bias), X * scale]).T
    hidden = erf(inputs) if sigmoid else (inputs > 0).astype(float) * inputs**order
    moments = (1 if sigmoid else 2) * 1.3**2 * hidden.T @ hidden / 2**16
    # Sobol points integrate smooth functions to 1e-4, the step to 1e-3.
    np.testing.assert_allclose(kernel(X), moments, atol=1e-3 * np.abs(moments).max())


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.float64_only
def test_arc_cosine_keeps_digits_of_small_angles(order):
    # Points 1e-3 apart: the angle is lost to rounding in float32 if it is taken from its cosine.
    gap = 2.0**-10
    kernel, X = ArcCosine(order), np.array([[1.0], [1.0 + gap]], DTYPE)
    angle = math.atan(1 + gap) - math.atan(1)
    loss = 1 - float(kernel(X)[0, 1]) / float(jnp.sqrt(jnp.prod(kernel.diag(X))))
    assert loss == pytest.approx([angle / math.pi, angle**2 / 2][order], abs=by_lane(1e-8, 5e-7))


@pytest.mark.slow
def test_arc_sine_keeps_its_digits_far_from_the_origin():
    # There the argument of the arc sine is 1 to rounding, and its derivative infinite; the angle is arctan(adjacent).
    X = np.array([[300.0]], DTYPE)
    kernel = ArcSine(1.0, 1.0, 1.0)
    squared = 1.0 + 300.0**2
    rest = 2 / math.pi * math.atan2(math.sqrt(1 + 4 * squared), 2 * squared)  # what is lacking of the amplitude
    assert 1 - float(kernel(X)[0, 0]) == pytest.approx(rest, rel=by_lane(1e-9, 1e-4))
    slope = jax.grad(lambda scale: ArcSine(1.0, scale, 1.0)(X)[0, 0])(jnp.asarray(1.0, DTYPE))
    # d/ds of the closed form (2/pi) arcsin(2q / (1 + 2q)), q = 1 + 300^2 s^2
    expected = 2 / math.pi * 2 / ((1 + 2 * squared) * math.sqrt(1 + 4 * squared)) * 2 * 300.0**2
    assert float(slope) == pytest.approx(expected, rel=by_lane(1e-9, 1e-4))


@pytest.mark.float64_only
@pytest.mark.parametrize("name", ["arc-cosine 1", "arc-cosine 2", "arc-sine", "arc-sine, odd"])
def test_derivatives_at_coincident_inputs_are_those_of_the_formula(name):
    """``d2 k / dx dx'`` at x = x', the variance of the derivative, by differences of the formula itself."""
    kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, DTYPE), KERNELS[name]())
    plain, h = KERNELS[name](), 1e-3

    def k(x, x2):
        return kernel(jnp.stack([x, jnp.asarray(0.3, DTYPE)])[None], jnp.stack([x2, jnp.asarray(0.3, DTYPE)])[None])[
            0, 0
        ]

    for x in (0.0, 0.9):
        corners = {(s, t): value(plain, (x + s * h, 0.3), (x + t * h, 0.3)) for s in (-1, 1) for t in (-1, 1)}
        difference = (corners[1, 1] - corners[1, -1] - corners[-1, 1] + corners[-1, -1]) / (4 * h**2)
        mixed = jax.grad(jax.grad(k), argnums=1)(jnp.asarray(x, DTYPE), jnp.asarray(x, DTYPE))
        assert float(mixed) == pytest.approx(difference, rel=5e-3)


def test_periodic_kernel_repeats():
    kernel, X = Periodic(0.5, 0.8), np.array([[0.125], [0.25]], DTYPE)
    np.testing.assert_array_equal(kernel(X, X + 512), kernel(X))
    np.testing.assert_allclose(kernel.variance, 1.0)
    short = Periodic(1.0, 0.05)  # the squared exponential of lengthscale ℓ·T/2π
    near = np.linspace(0, 0.02, 5, dtype=DTYPE)[:, None]
    np.testing.assert_allclose(short(near), SquaredExponential(0.05 / (2 * math.pi))(near), atol=5e-3)


# Derivatives ----------------------------------------------------------------------------------------------------------


@everything
@pytest.mark.float64_only
def test_derivatives_are_finite_at_coincident_inputs_and_at_the_origin(name):
    kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, DTYPE), KERNELS[name]())
    d = points(kernel).shape[1]
    for X in (np.zeros((3, d), DTYPE), np.full((3, d), 0.7, DTYPE)):
        grads = jax.jit(jax.grad(lambda kernel, X: jnp.sum(kernel(X)), argnums=(0, 1)))(kernel, X)
        hessian = jax.jit(jax.hessian(lambda X: jnp.sum(kernel(X))))(X)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((grads, hessian)))


@pytest.mark.float64_only
@everything
def test_gradients_match_finite_differences(name):
    kernel = KERNELS[name]()
    start, rebuild = ravel_pytree(jax.tree.map(jnp.asarray, (kernel, points(kernel, 4))))

    @jax.jit
    def f(flat):
        kernel, X = rebuild(flat)
        return jnp.sum(jnp.sin(kernel(X, points(kernel, 3, seed=2))))

    step = 1e-5
    differences = [(f(start + e) - f(start - e)) / (2 * step) for e in step * np.eye(len(start))]
    np.testing.assert_allclose(jax.grad(f)(start), differences, rtol=1e-6, atol=1e-8)


# Conventions ----------------------------------------------------------------------------------------------------------


@everything
def test_pytrees_pickles_and_transformations(name):
    kernel = KERNELS[name]()
    X, want = points(kernel), kernel(points(kernel))
    leaves, tree = jax.tree.flatten(kernel)
    for copy in (jax.tree.unflatten(tree, leaves), pickle.loads(pickle.dumps(kernel))):
        assert repr(copy) == repr(kernel)
        np.testing.assert_array_equal(copy(X), want)
    np.testing.assert_allclose(jax.jit(lambda kernel: kernel(X))(kernel), want, rtol=10 * RTOL, atol=RTOL)
    pair = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf, DTYPE), 2 * jnp.asarray(leaf, DTYPE)]), kernel)
    np.testing.assert_allclose(jax.vmap(lambda kernel: kernel(X))(pair)[0], want, rtol=10 * RTOL, atol=10 * RTOL)
    shapes = jax.eval_shape(lambda X: (kernel(X), kernel.diag(X)), X.astype(np.float32))
    assert {shape.dtype for shape in shapes} == {np.dtype(np.float32)}
    assert kernel(np.ones(X.shape, int)).dtype == jnp.result_type(float)


@everything
def test_sums_and_products_have_values(name):
    kernel, other = KERNELS[name](), SquaredExponential(0.7)
    X = points(kernel)
    np.testing.assert_allclose((kernel + other)(X), kernel(X) + other(X), rtol=RTOL)
    np.testing.assert_allclose((kernel * other).diag(X), kernel.diag(X) * other.diag(X), rtol=RTOL)


SE = SquaredExponential(1.0)
ONE, TWO = np.ones((3, 1)), np.ones((3, 2))
REFUSED = {
    "variance": (
        lambda: Linear().variance,
        r"Linear is not stationary: it has no one variance.*`diag\(X\)`.*LinearBasis",
    ),
    "variance of a sum": (lambda: Sum((SE, Polynomial(2))).variance, "Polynomial is not stationary"),
    "components": (
        lambda: Product((SE, ArcCosine(1))).spectral_components(),
        "Product: no spectral density for ArcCosine",
    ),
    "spectrum of a sum": (
        lambda: (SE + Linear()).spectral_density(ONE),
        "Sum: no spectral density for Linear. Use stationary kernels",
    ),
    "frequencies of a product": (
        lambda: (SE * Linear()).sample_frequencies(jax.random.key(0), (3, 1)),
        "no spectral density for Linear",
    ),
    "Fourier features": (
        lambda: sgp.FourierBasis.sample(jax.random.key(0), Periodic(1.0, 1.0), 4, 1),
        "FourierBasis.sample: no spectral density for Periodic.*InterpolationBasis takes any kernel",
    ),
    "Fourier features of a line": (
        lambda: sgp.FourierBasis.sample(jax.random.key(0), (SE + Polynomial(2)) * Linear(), 4, 1),
        "no spectral density for Linear and Polynomial",
    ),
    "Fourier weights": (
        lambda: sgp.FourierBasis.sample(jax.random.key(0), SE, 4, 1).weight_prior(SE * Linear()),
        "FourierBasis.weight_prior: no spectral density for Linear.*also products",
    ),
    "Laplace weights": (
        lambda: sgp.LaplaceBasis(4, [0.0], [1.0]).weight_prior(Periodic(1.0, 0.8)),
        "LaplaceBasis.weight_prior: no spectral density for Periodic.*InterpolationBasis takes any kernel",
    ),
    "period": (lambda: Periodic(0.0, 1.0), "Periodic: `period` must be positive"),
    "ARD": (
        lambda: Periodic(1.0, [1.0, 2.0]),
        r"`lengthscale` must be a scalar, as there is one input; got shape \(2,\)",
    ),
    "two inputs": (
        lambda: Periodic(1.0, 1.0)(TWO),
        r"`X` must have shape \(n, 1\), one input; got \(3, 2\).*X\[:, \[0\]\]",
    ),
    "two inputs, diagonal": (lambda: Periodic(1.0, 1.0).diag(TWO), "one input"),
    "columns": (lambda: Linear()(ONE, TWO), "`X` and `X2` must have the same columns"),
    "vector": (lambda: Linear()(ONE[:, 0]), r"X\[:, None\]"),
    "amplitude": (lambda: Linear(-1.0), "Linear: `weight_scale` must be positive"),
    "amplitudes": (lambda: Linear([1.0, 2.0])(ONE), "`weight_scale` has 2 entries but there are 1 inputs"),
    "matrix": (lambda: Linear(np.ones((2, 2))), r"`weight_scale` must be a scalar or of shape \(d,\)"),
    "bias": (lambda: Linear(1.0, -1.0), "Linear: `bias` must be finite and at least 0.*got -1.0"),
    "biases": (lambda: Linear(1.0, np.ones(2)), "`bias` must be a scalar"),
    "degree": (lambda: Polynomial(0), "Polynomial: `degree` must be an integer of 1 or more; got 0"),
    "fractional degree": (lambda: Polynomial(1.5), "`degree` must be an integer of 1 or more; got 1.5"),
    "order": (lambda: ArcCosine(3), "ArcCosine: `order` must be 0, 1 or 2, from rough to smooth; got 3"),
    "sigmoid amplitudes": (lambda: ArcSine([1.0, 2.0]), r"ArcSine: `amplitude` must be a scalar; got shape \(2,\)"),
    "sigmoid bias": (lambda: ArcSine(bias=-1.0), "ArcSine: `bias` must be finite and at least 0"),
    "no bias": (lambda: ArcCosine(1, bias=0.0), "ArcCosine: `bias` must be positive"),
    "output amplitudes": (lambda: ArcCosine(1, [1.0, 2.0]), r"`amplitude` must be a scalar; got shape \(2,\)"),
    "weights": (lambda: ArcCosine(1, 1.0, [1.0, 2.0])(ONE), "`weight_scale` has 2 entries but there are 1 inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
