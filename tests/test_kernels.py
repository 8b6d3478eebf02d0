"""Kernels against slow references: loops for values, convolutions and cosine sums for spectra."""

from __future__ import annotations

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpy.polynomial.legendre import leggauss
from scipy.special import gammaln, kve
from scipy.stats import norm, qmc

from ppl_sgp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

X64 = jax.config.jax_enable_x64
DTYPE = np.float64 if X64 else np.float32
# Values of order one after some tens of roundings each; log densities in float32 also lose the size of their exponent.
RTOL = 1e-12 if X64 else 2e-5

FAMILIES = {
    "se": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rq": lambda lengthscale, amplitude=1.0: RationalQuadratic(lengthscale, amplitude, alpha=1.7),
}
families = pytest.mark.parametrize("family", FAMILIES)
COMPOSITES = {
    "sum": lambda: SquaredExponential(0.7, 1.2) + Matern32(1.5, 0.8),
    "three": lambda: SquaredExponential(0.7) + Matern12(1.5, 0.5) + RationalQuadratic(1.0, 2.0, 2.0),
    "se*se": lambda: SquaredExponential(0.7, 1.2) * SquaredExponential(1.5, 0.8),
    "matern*se": lambda: Matern32(0.7, 1.2) * SquaredExponential(1.5),
    "matern*rq": lambda: Matern52(1.3, 1.2) * RationalQuadratic(0.8, 1.1, 1.5),
    "sum*matern": lambda: (SquaredExponential(0.7) + Matern32(1.5, 0.8)) * Matern52(2.0),
}
ALL = {**{name: lambda make=make: make(0.8, 1.3) for name, make in FAMILIES.items()}, **COMPOSITES}
everything = pytest.mark.parametrize("name", ALL)
# One of each code path of the spectra, for tests that compile a program each.
spectral_paths = pytest.mark.parametrize("name", ["se", "matern32", "rq", "sum"])


def correlation(kernel, r):
    """The textbook formula at one scaled distance."""
    if isinstance(kernel, SquaredExponential):
        return math.exp(-0.5 * r * r)
    if isinstance(kernel, RationalQuadratic):
        return (1 + r * r / (2 * kernel.alpha)) ** -kernel.alpha
    if isinstance(kernel, Matern12):
        return math.exp(-r)
    if isinstance(kernel, Matern32):
        return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)


def value(kernel, x, x2):
    """The kernel at one pair of points, by loops."""
    if isinstance(kernel, Sum):
        return sum(value(k, x, x2) for k in kernel.kernels)
    if isinstance(kernel, Product):
        return math.prod(value(k, x, x2) for k in kernel.kernels)
    scales = np.broadcast_to(kernel.lengthscale, len(x))
    r = math.sqrt(sum(((float(a) - float(b)) / float(s)) ** 2 for a, b, s in zip(x, x2, scales, strict=True)))
    return kernel.amplitude**2 * correlation(kernel, r)


def log_density(kernel, xi):
    """The one-dimensional log spectral density of a base kernel, from the closed forms with scipy's Bessel function."""
    length, a2 = kernel.lengthscale, kernel.amplitude**2
    w = 2 * np.pi * length * np.abs(xi)
    if isinstance(kernel, SquaredExponential):
        return np.log(a2 * length * math.sqrt(2 * np.pi)) - w**2 / 2
    if isinstance(kernel, RationalQuadratic):
        alpha, nu, z = kernel.alpha, kernel.alpha - 0.5, w * math.sqrt(2 * kernel.alpha)
        log_k = np.log(kve(abs(nu), z)) - z
        return np.log(2 * a2 * length) + 0.5 * np.log(2 * np.pi * alpha) - gammaln(alpha) + nu * np.log(z / 2) + log_k
    nu = {Matern12: 0.5, Matern32: 1.5, Matern52: 2.5}[type(kernel)]
    constant = math.log(a2 * length * 2 * math.sqrt(math.pi)) + math.lgamma(nu + 0.5) - math.lgamma(nu)
    return constant + nu * math.log(2 * nu) - (nu + 0.5) * np.log(2 * nu + w**2)


def panels(edges, nodes=12):
    """Composite Gauss-Legendre nodes and weights."""
    z, w = leggauss(nodes)
    a, b = edges[:-1, None], edges[1:, None]
    return ((a + b) / 2 + (b - a) / 2 * z).ravel(), ((b - a) / 2 * w).ravel()


def points(n=6, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(DTYPE)


# values


@everything
def test_values_match_loops(name):
    kernel, X, X2 = ALL[name](), points(4), points(3, seed=1)
    want = [[value(kernel, x, x2) for x2 in X2] for x in X]
    np.testing.assert_allclose(kernel(X, X2), want, rtol=RTOL)
    np.testing.assert_allclose(kernel(X), [[value(kernel, x, x2) for x2 in X] for x in X], rtol=RTOL)
    np.testing.assert_allclose(kernel.diag(X), [value(kernel, x, x) for x in X], rtol=RTOL)
    np.testing.assert_allclose(kernel.variance, value(kernel, X[0], X[0]), rtol=RTOL)


@families
def test_ard_values_match_loops(family):
    kernel, X = FAMILIES[family](np.array([0.5, 2.0, 5.0], DTYPE), 1.5), points(4, 3)
    np.testing.assert_allclose(kernel(X), [[value(kernel, x, x2) for x2 in X] for x in X], rtol=RTOL)
    assert FAMILIES[family]([0.5, 2.0, 5.0])(X).shape == (4, 4)


@families
def test_near_inputs_far_from_the_origin_do_not_cancel(family):
    # 2**-10 is exact beside 1000 in float32 (spacing 2**-14); an expanded square would lose it
    kernel, X = FAMILIES[family](2.0**-10), np.array([[1000.0], [1000.0 + 2.0**-10]], DTYPE)
    np.testing.assert_allclose(kernel(X)[0, 1], correlation(kernel, 1.0), rtol=RTOL)


def test_rational_quadratic_tends_to_squared_exponential():
    X = points(4)
    # the log correlations differ by about r**4 / (8 alpha)
    np.testing.assert_allclose(RationalQuadratic(1.0, 1.0, 1e6)(X), SquaredExponential(1.0)(X), atol=2e-5)


# derivatives


@families
def test_derivatives_finite_at_coincident_inputs(family):
    X, scales = np.zeros((3, 2), DTYPE), jnp.ones(2, DTYPE)

    def total(X, scales, amplitude):
        return jnp.sum(FAMILIES[family](scales, amplitude)(X))

    grads = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(X, scales, jnp.ones((), DTYPE))
    np.testing.assert_array_equal(grads[0], 0)
    np.testing.assert_array_equal(grads[1], 0)
    np.testing.assert_allclose(grads[2], 18.0, rtol=RTOL)  # 9 entries of amplitude**2
    hessian = jax.jit(jax.hessian(total, argnums=(0, 1, 2)))(X, scales, jnp.ones((), DTYPE))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(hessian))


@pytest.mark.parametrize("family, curvature", [("se", -1.0), ("rq", -1.0), ("matern32", -3.0), ("matern52", -5 / 3)])
def test_curvature_at_zero_distance(family, curvature):
    def k(x):
        return FAMILIES[family](2.0)(x[None, None], jnp.zeros((1, 1), DTYPE))[0, 0]

    np.testing.assert_allclose(jax.grad(jax.grad(k))(jnp.zeros((), DTYPE)), curvature / 4, rtol=RTOL)


@pytest.mark.float64_only
@pytest.mark.parametrize(
    "name, what",
    [(name, "value") for name in ALL] + [(name, "spectrum") for name in [*FAMILIES, "sum", "se*se", "matern*rq"]],
)
def test_gradients_match_finite_differences(name, what):
    X, frequencies = points(4, 2), 0.4 * points(4, 2, seed=1)
    start, rebuild = ravel_pytree(jax.tree.map(jnp.asarray, (ALL[name](), X, frequencies)))

    def f(flat):
        kernel, X, frequencies = rebuild(flat)
        if what == "value":
            return jnp.sum(jnp.sin(kernel(X, points(3, 2, seed=2))))
        return jnp.sum(jnp.sin(kernel.log_spectral_density(frequencies)))

    step, f_and_grad = 1e-5, jax.jit(jax.value_and_grad(f))
    grad = f_and_grad(start)[1]
    differences = [
        (f_and_grad(start + e)[0] - f_and_grad(start - e)[0]) / (2 * step) for e in step * np.eye(len(start))
    ]
    np.testing.assert_allclose(grad, differences, rtol=1e-6, atol=1e-8)  # truncation 1e-10, rounding 1e-11 times |f|


@spectral_paths
def test_spectral_derivatives_finite_at_zero_frequency(name):
    def f(kernel, xi):
        return kernel.log_spectral_density(xi)[0]

    xi = jnp.zeros((1, 2), DTYPE)
    kernel = jax.tree.map(lambda v: jnp.asarray(v, DTYPE), ALL[name]())
    grads = jax.jit(jax.grad(f, argnums=(0, 1)))(kernel, xi)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    np.testing.assert_allclose(grads[1], 0, atol=1e-6)  # an even function


# spectral densities


@pytest.mark.parametrize("name", ["se", "matern32", "rq", "sum", "matern*rq"])
def test_spectral_density_transforms_back_in_one_dimension(name):
    kernel = ALL[name]()
    # the tail beyond 1e4 holds 1e-5 of a Matern 1/2 of these lengthscales; the panels resolve cos up to tau = 3
    xi, weight = panels(np.concatenate([np.linspace(0, 20, 51), np.geomspace(20, 1e4, 12)[1:]]))
    density = np.asarray(kernel.spectral_density(xi[:, None].astype(DTYPE)), np.float64)
    np.testing.assert_allclose(2 * np.sum(weight * density), kernel.variance, rtol=5e-5)
    near = xi < 20
    for tau in (0.3, 1.0, 3.0):
        # beyond 20 the cosine averages out: the rest is below density(20) / (pi tau)
        rest = 2 * density[near][-1] / (2 * math.pi * tau)
        got = 2 * np.sum((weight * density * np.cos(2 * math.pi * xi * tau))[near])
        np.testing.assert_allclose(got, value(kernel, [0.0], [tau]), atol=2 * rest + 1e-5)


@families
@pytest.mark.parametrize("d", [2, 3])
def test_spectral_density_integrates_to_the_variance(family, d):
    scales = np.linspace(0.5, 2.0, d)
    kernel = FAMILIES[family](scales.astype(DTYPE), 1.3)
    # along one ray of scaled frequencies, which the density is radial in: int = area * int s**(d-1) S ds / prod(scales)
    s, weight = panels(np.concatenate([[0], np.geomspace(1e-4, 1e6, 80)]))
    xi = np.zeros((len(s), d))
    xi[:, 0], xi[:, 1] = 0.6 * s / scales[0], 0.8 * s / scales[1]
    density = np.asarray(kernel.log_spectral_density(xi.astype(DTYPE)), np.float64)
    area = {2: 2 * math.pi, 3: 4 * math.pi}[d]
    total = area * np.sum(weight * np.exp(density + (d - 1) * np.log(s))) / np.prod(scales)
    np.testing.assert_allclose(total, 1.3**2, rtol=1e-5)


@families
def test_log_spectral_density_matches_closed_form(family):
    kernel, xi = FAMILIES[family](0.8, 1.3), np.geomspace(1e-7, 1e3, 60)
    got = kernel.log_spectral_density(xi[:, None].astype(DTYPE))
    np.testing.assert_allclose(
        got, log_density(kernel, xi), rtol=RTOL * 100 if X64 else 1e-5, atol=1e-10 if X64 else 1e-5
    )


@pytest.mark.parametrize("order", [-0.49, -0.25, 0.0, 1e-3, 0.1, 0.5, 1.0, 2.5, 9.7, 10.0, 30.0, 50.0])
def test_rational_quadratic_spectrum_matches_bessel_function(order):
    # the spectral density in one dimension is K_order(z) up to known factors, order = alpha - 1/2
    kernel, z = RationalQuadratic(1.0, 1.0, order + 0.5), np.geomspace(1e-6, 1e3, 60)
    xi = z / math.sqrt(2 * kernel.alpha) / (2 * math.pi)
    got = np.asarray(kernel.log_spectral_density(xi[:, None].astype(DTYPE)))
    with np.errstate(over="ignore"):
        want = log_density(kernel, xi)
    known = np.isfinite(want)  # scipy overflows at order 50 and small z
    assert known.sum() > 45
    # float32: the exponent -1000 has spacing 6e-5
    np.testing.assert_allclose(got[known], want[known], rtol=0, atol=1e-9 if X64 else 2e-4)


@pytest.mark.parametrize("d, alpha", [(1, 0.5), (3, 1.2)])
def test_rational_quadratic_spectrum_at_zero(d, alpha):
    xi = np.array([[0.0], [1e-12]], DTYPE) * np.ones((1, d), DTYPE)
    zero, near = RationalQuadratic(1.0, 1.0, alpha).log_spectral_density(xi)
    assert zero == np.inf and np.isfinite(near)
    want = d / 2 * math.log(2 * math.pi * 4.0) + math.lgamma(4.0 - d / 2) - math.lgamma(4.0)
    np.testing.assert_allclose(RationalQuadratic(1.0, 1.0, 4.0).log_spectral_density(xi), want, rtol=10 * RTOL + 1e-9)


@pytest.mark.parametrize(
    "factors",
    [
        (Matern32(1.0), SquaredExponential(0.7)),
        (Matern32(1.0), SquaredExponential(50.0)),
        (Matern12(1.0), SquaredExponential(0.02)),
        (Matern12(1.0), Matern52(10.0)),
        (Matern52(1.0), RationalQuadratic(0.8, 1.0, 1.5)),
        (Matern52(30.0), RationalQuadratic(0.3, 1.0, 10.0)),
        (SquaredExponential(1.0), RationalQuadratic(0.8, 1.0, 0.7)),
    ],
    ids=lambda factors: "*".join(f"{type(k).__name__}({k.lengthscale})" for k in factors),
)
def test_product_spectrum_matches_convolution(factors):
    one, two = factors
    xs = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 7)])
    got = np.asarray(Product(factors).log_spectral_density(xs[:, None].astype(DTYPE)))
    for x, log_s in zip(xs, got, strict=True):
        # panels graded towards the cusps of both densities, and even ones where exponential tails overlap
        grid = np.concatenate([[0.0], np.geomspace(1e-16, 1e8, 200), np.arange(0, min(x, 100.0), 0.1)])
        u, weight = panels(np.unique(np.concatenate([grid, -grid, x - grid, x + grid])))
        regular = (u != 0) & (u != x)
        u, weight = u[regular], weight[regular]
        terms = np.log(weight) + log_density(one, u) + log_density(two, x - u)
        want = terms.max() + np.log(np.sum(np.exp(terms - terms.max())))
        # float32: rounding of the exponent, which the sum does not average out
        np.testing.assert_allclose(log_s, want, rtol=0 if X64 else 3e-6, atol=1e-6 if X64 else 2e-4)


def test_product_of_squared_exponentials_is_one():
    a, b = np.array([0.7, 2.0]), np.array([1.5, 0.4])
    product = SquaredExponential(a.astype(DTYPE), 1.2) * SquaredExponential(b.astype(DTYPE), 0.8)
    single = SquaredExponential((1 / np.sqrt(1 / a**2 + 1 / b**2)).astype(DTYPE), 0.96)
    xi = points(4)
    np.testing.assert_allclose(product.log_spectral_density(xi), single.log_spectral_density(xi), rtol=10 * RTOL)


def test_sum_in_product_is_multiplied_out():
    a, b, c = SquaredExponential(0.7), Matern32(1.5, 0.8), SquaredExponential(2.0)
    xi = points(4)
    want = (a * c).spectral_density(xi) + (b * c).spectral_density(xi)
    np.testing.assert_allclose(((a + b) * c).spectral_density(xi), want, rtol=RTOL)


# sampling


def assert_reproduces(kernel, xi):
    """E cos(2 pi xi.tau) is the correlation: each mean of N bounded terms is within 6 standard errors."""
    xi = np.asarray(xi, np.float64)
    for tau in (np.array([0.2, -0.1]), np.array([0.7, 0.4]), np.array([0.0, 1.5])):
        cosines = np.cos(2 * np.pi * xi @ tau)
        want = value(kernel, tau, np.zeros(2)) / float(kernel.variance)
        assert abs(cosines.mean() - want) < 6 * cosines.std() / math.sqrt(len(xi)), (tau, cosines.mean(), want)


@everything
def test_sampled_frequencies_reproduce_the_kernel(name):
    xi = ALL[name]().sample_frequencies(jax.random.key(1), (20_000, 2))
    assert xi.shape == (20_000, 2) and xi.dtype == DTYPE
    assert_reproduces(ALL[name](), xi)


@families
def test_ard_frequencies_reproduce_the_kernel(family):
    kernel = FAMILIES[family](np.array([0.4, 1.5], DTYPE))
    assert_reproduces(kernel, kernel.sample_frequencies(jax.random.key(2), (20_000, 2)))
    normals, uniforms = variates(kernel, 4096)
    assert_reproduces(kernel, kernel.frequencies_from(normals, uniforms))


def test_sampling_under_jit():
    kernel, key = SquaredExponential(0.7) + Matern32(1.5, 0.8) * SquaredExponential(1.0), jax.random.key(0)
    draw = jax.jit(lambda kernel, key: kernel.sample_frequencies(key, (2, 3, 2)))
    np.testing.assert_allclose(draw(kernel, key), kernel.sample_frequencies(key, (2, 3, 2)), rtol=100 * RTOL)


def variates(kernel, n, d=2):
    """Scrambled Sobol points, split into the blocks that a kernel takes."""
    blocks, e = kernel.spectral_shape
    u = qmc.Sobol(blocks * d + e, seed=3).random(n)
    return norm.ppf(u[:, : blocks * d]).reshape(n, blocks, d), u[:, blocks * d :]


@everything
def test_quasi_random_frequencies_reproduce_each_component(name):
    kernel = ALL[name]()
    components = kernel.spectral_components()
    np.testing.assert_allclose(sum(variance for variance, _ in components), kernel.variance, rtol=RTOL)
    for variance, part in components:
        np.testing.assert_allclose(part.variance, variance, rtol=RTOL)
        xi = part.frequencies_from(*variates(part, 4096))
        assert isinstance(xi, np.ndarray) and xi.dtype == np.float64 and xi.shape == (4096, 2)
        assert_reproduces(part, xi)  # Sobol points are no worse than independent ones


def test_frequencies_from_extreme_uniforms_are_finite():
    for kernel in (Matern12(1.0), RationalQuadratic(1.0)):
        assert np.isfinite(kernel.frequencies_from(np.ones((2, 1, 1)), np.array([[0.0], [1.0]]))).all()


def test_spectral_shapes():
    assert SquaredExponential(1.0).spectral_shape == (1, 0)
    assert Matern32(1.0).spectral_shape == RationalQuadratic(1.0).spectral_shape == (1, 1)
    assert (SquaredExponential(1.0) * Matern32(1.0) * Matern12(1.0)).spectral_shape == (3, 2)
    a, b, c, d = SquaredExponential(1.0), Matern12(1.0, 2.0), Matern32(1.0), Matern52(1.0, 3.0)
    assert [variance for variance, _ in ((a + b) * (c + d)).spectral_components()] == [1.0, 9.0, 4.0, 36.0]


# JAX and Python conventions


@spectral_paths
def test_jit_pytree_and_pickle(name):
    kernel, X, xi = ALL[name](), points(4), points(4, seed=1)
    want = kernel(X), kernel.log_spectral_density(xi).reshape(2, 2)
    got = jax.jit(lambda k, X, xi: (k(X), k.log_spectral_density(xi)))(kernel, X, xi.reshape(2, 2, 2))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=10 * RTOL, atol=10 * RTOL)
    leaves, tree = jax.tree.flatten(kernel)
    for copy in (jax.tree.unflatten(tree, leaves), pickle.loads(pickle.dumps(kernel))):
        assert repr(copy) == repr(kernel)
        np.testing.assert_array_equal(copy(X), want[0])
    assert "lengthscale=" in repr(kernel) and type(kernel).__name__ in repr(kernel)


@families
def test_vmap_over_lengthscale(family):
    X, xi, scales = points(4), points(4, seed=1), np.array([0.5, 1.0, 2.0], DTYPE)

    @jax.jit
    def both(scale):
        kernel = FAMILIES[family](scale)
        return kernel(X), kernel.log_spectral_density(xi)

    for got, want in zip(jax.vmap(both)(scales), zip(*map(both, scales), strict=True), strict=True):
        np.testing.assert_allclose(got, np.stack(want), rtol=10 * RTOL, atol=10 * RTOL)


@everything
def test_float32_stays_float32(name):
    kernel, X = ALL[name](), points(4).astype(np.float32)

    def results(kernel, X, whole):
        draws = jax.tree.map(jnp.float32, kernel).sample_frequencies(jax.random.key(0), (4, 2))
        return kernel(X), kernel.diag(X), kernel.spectral_density(X), draws, jax.tree.map(jnp.float32, kernel)(whole)

    # integer inputs do not promote either
    shapes = jax.eval_shape(results, kernel, X, np.arange(8).reshape(4, 2))
    assert {r.dtype for r in shapes} == {np.dtype(np.float32)}


def test_nested_composites_are_flat():
    a, b, c = SquaredExponential(1.0), Matern12(1.0), Matern32(1.0)
    assert (a + (b + c)).kernels == ((a + b) + c).kernels == (a, b, c)
    assert (a * (b * c)).kernels == (a, b, c)
    assert ((a + b) * c).kernels[1] is c


def test_errors_name_the_remedy():
    k, X = SquaredExponential(1.0), points(3)
    for bad in (-1.0, 0.0, math.nan, [1.0, -2.0]):
        with pytest.raises(ValueError, match="SquaredExponential: `lengthscale` must be positive"):
            SquaredExponential(bad)
    with pytest.raises(ValueError, match="RationalQuadratic: `alpha` must be positive"):
        RationalQuadratic(1.0, alpha=-1.0)
    with pytest.raises(ValueError, match="`amplitude` must be a scalar; got shape \\(2,\\).*vmap"):
        Matern12(1.0, np.ones(2))
    with pytest.raises(ValueError, match="`lengthscale` must be a scalar or of shape \\(d,\\)"):
        Matern12(np.ones((2, 2)))
    ard = Matern32([1.0, 2.0, 3.0])
    for call in (
        lambda: ard(X),
        lambda: ard.diag(X),
        lambda: ard.log_spectral_density(X),
        lambda: ard.sample_frequencies(jax.random.key(0), (4, 2)),
        lambda: ard.frequencies_from(np.ones((4, 1, 2)), np.ones((4, 1))),
    ):
        with pytest.raises(ValueError, match="3 entries but there are 2 inputs. Give one lengthscale for each column"):
            call()
    with pytest.raises(ValueError, match="X\\[:, None\\]"):
        k(X[:, 0])
    with pytest.raises(ValueError, match="same columns"):
        k(X, X[:, :1])
    with pytest.raises(ValueError, match="frequencies\\[..., None\\]"):
        k.spectral_density(1.0)
    for scale in (lambda: k * 2.0, lambda: 2.0 * k, lambda: k + 1.0, lambda: 1.0 + k):
        with pytest.raises(TypeError, match="set its `amplitude`"):
            scale()
    with pytest.raises(TypeError, match="`kernels` must be kernels; got float"):
        Sum((k, 1.0))
    with pytest.raises(ValueError, match="at least one"):
        Product(())


def test_spectral_errors_name_the_remedy():
    k, m, q = SquaredExponential(1.0), Matern32(1.0), RationalQuadratic(1.0)
    for product in (m * m * m, q * q, k * m * m * q):
        with pytest.raises(ValueError, match="at most two Matern.*Add kernels instead"):
            product.spectral_density(points(2))
        assert jax.eval_shape(lambda key, p=product: p.sample_frequencies(key, (3, 2)), jax.random.key(0)).shape == (
            3,
            2,
        )
    with pytest.raises(ValueError, match="spectral_components"):
        _ = ((k + m) * q).spectral_shape
    with pytest.raises(ValueError, match="\\(N, 1, d\\) and `uniforms` \\(N, 1\\).*`spectral_shape`"):
        m.frequencies_from(np.ones((3, 1, 2)), np.ones((3, 0)))
    with pytest.raises(ValueError, match="\\[0, 1\\]"):
        m.frequencies_from(np.ones((3, 1, 2)), np.full((3, 1), -0.5))
    with pytest.raises(ValueError, match="outside `jit`.*sample_frequencies"):
        jax.jit(lambda s: Matern32(s).frequencies_from(np.ones((3, 1, 2)), np.ones((3, 1))))(1.0)
    with pytest.raises(ValueError, match="Sum has no spectral density that can be sampled.*spectral_components"):
        _ = (k + m).spectral_shape
