"""Kernels as pytrees: jit, vmap, pickling, dtypes, and errors that name the remedy."""

from __future__ import annotations

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl_sgp.kernels import (
    Matern12,
    Matern32,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from tests.kernels.cases import ALL, DTYPE, FAMILIES, RTOL, everything, families, points, spectral_paths


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
    assert not hasattr(k + m, "spectral_shape")  # of each term
