"""What every basis with a kernel of its own is tested for."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np

import ppl_sgp as sgp
from tests.builders import X64, by_lane


def implied_kernel(basis, kernel, X, X2=None):
    """φᵀS⁻¹φ in float64, from the weight prior."""
    variance = np.exp(2 * np.asarray(basis.weight_prior(kernel).log_scale, np.float64))
    Phi = basis.host_features(X)
    return (Phi * variance) @ (Phi if X2 is None else basis.host_features(X2)).T


def check_features(basis, X):
    """Shapes, dtypes, JAX against the host, and independence of rows."""
    features = basis.host_features(X)
    assert features.shape == (len(X), basis.num_features) and features.dtype == np.float64
    assert basis.host_features(X[:0]).shape == basis(X[:0]).shape == (0, basis.num_features)
    for dtype in (jnp.float32, jnp.float64) if X64 else (jnp.float32,):
        in_jax = jax.jit(basis.__call__)(jnp.asarray(X, dtype))
        assert in_jax.dtype == dtype
        np.testing.assert_allclose(in_jax, features, atol=1e-12 if dtype == jnp.float64 else 1e-4, rtol=1e-5)
    for rows in (slice(0, 1), slice(1, None, 3)):
        np.testing.assert_allclose(basis.host_features(X[rows]), features[rows], rtol=1e-14, atol=1e-14)
    batch = jax.vmap(basis.__call__)(jnp.stack([jnp.asarray(X), jnp.asarray(X)]))
    np.testing.assert_allclose(batch[1], features, atol=by_lane(1e-12, 1e-4), rtol=1e-5)


def check_copies(basis, X, kernel, tmp_path):
    """A pytree, a pickle and a saved file give the same features and the same prior."""
    stats = sgp.sufficient_statistics(basis, X, X[:, 0])
    stats.save(tmp_path / "stats")
    loaded = sgp.SufficientStatistics.load(tmp_path / "stats")
    leaves, tree = jax.tree.flatten(basis)
    for copy in (loaded.basis, pickle.loads(pickle.dumps(basis)), jax.tree.unflatten(tree, leaves)):
        assert jax.tree.structure(copy) == tree
        np.testing.assert_array_equal(copy.host_features(X), basis.host_features(X))
        np.testing.assert_array_equal(copy.weight_prior(kernel).log_scale, basis.weight_prior(kernel).log_scale)
    assert (stats + loaded).num_rows == 2 * stats.num_rows


def check_gradients(log_scale, *hyperparameters):
    """Finite, and those of finite differences."""
    arguments = jnp.asarray(hyperparameters)

    def total(arguments):
        return jnp.sum(jnp.sin(log_scale(*arguments)))

    gradient = jax.jit(jax.grad(total))(arguments)
    assert np.isfinite(gradient).all()
    if X64:
        step = 1e-6
        differences = [
            (total(arguments + e) - total(arguments - e)) / (2 * step) for e in step * np.eye(len(arguments))
        ]
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)
