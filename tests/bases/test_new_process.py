"""Frozen bases give the same features after saving, loading and a new process."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import ppl_sgp as sgp

SCRIPT = """
import sys, numpy as np, ppl_sgp as sgp
for name in sys.argv[2:]:
    stats = sgp.SufficientStatistics.load(f"{sys.argv[1]}/{name}.npz")
    np.save(f"{sys.argv[1]}/{name}.npy", stats.basis.host_features(np.load(f"{sys.argv[1]}/X_new.npy")))
"""


@pytest.mark.end_to_end
@pytest.mark.float64_only
def test_features_are_identical_in_a_new_process(tmp_path):
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(size=(30, 2)), rng.uniform(0.2, 0.8, size=(7, 2))
    kernel = sgp.SquaredExponential(np.array([0.5, 0.7]))
    bases = {
        "fourier": sgp.FourierBasis.from_data(jax.random.key(0), X, 10),
        "laplace": sgp.LaplaceBasis.from_data(X, 4),
        "grid_eigen": sgp.GridEigenBasis.from_kernel(kernel, X, 12),
        "nystrom": sgp.NystromBasis(X[:9], kernel),
        "interpolation": sgp.InterpolationBasis([np.linspace(-0.1, 1.1, 6)] * 2),
        "polynomial": sgp.PolynomialBasis.from_data(X, 2),
    }
    bases["stack"] = sgp.stack(bases["fourier"], sgp.LinearBasis(2))
    expected = {}
    for name, basis in bases.items():
        stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
        stats = stats.rotate() if name == "fourier" else stats
        stats.save(tmp_path / f"{name}.npz")
        expected[name] = stats.basis.host_features(X_new)
    np.save(tmp_path / "X_new.npy", X_new)
    environment = {key: value for key, value in os.environ.items() if key not in ("JAX_ENABLE_X64", "XLA_FLAGS")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), *bases], check=True, env=environment, timeout=300)
    for name, features in expected.items():
        # Compiled features may differ in the last digit between levels of optimisation.
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), features, rtol=0, atol=1e-13, err_msg=name)
