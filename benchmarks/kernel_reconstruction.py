"""Error of reconstructed kernels against m: grid-structured eigenfunctions, random features, random inducing points.

The protocol of Evans (2022), section 4.4.1 (figure 4.2): points uniform on [−√3, √3]^d (of unit variance), d = 100,
a squared exponential, 100 grid points an input (10^200 in all). Errors are relative, in the Frobenius norm; the
truncated eigendecomposition of the kernel matrix itself is the best any basis of m functions can do.

    python benchmarks/kernel_reconstruction.py            # about 3 minutes on 2 cores
    python benchmarks/kernel_reconstruction.py --smoke
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table

import ppl_sgp as sgp


def relative_error(basis: sgp.Basis, kernel: sgp.Kernel, X: np.ndarray, K: np.ndarray) -> float:
    scale = np.asarray(basis.weight_prior(kernel).scale)
    Phi = basis.host_features(X) * scale
    return float(np.linalg.norm(Phi @ Phi.T - K) / np.linalg.norm(K))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--input-dim", type=int, default=100)
    parser.add_argument("--lengthscale", type=float, default=30.0)
    parser.add_argument("--points-per-dim", type=int, default=100)
    parser.add_argument("--features", type=int, nargs="+", default=[10, 50, 102, 200, 500, 1000])
    parser.add_argument("--repeats", type=int, default=5, help="random draws of the peers; medians are shown")
    args = parser.parse_args()
    if args.smoke:
        args.points, args.input_dim, args.features, args.repeats, args.points_per_dim = 60, 5, [4, 8], 2, 10
    numpyro.enable_x64()
    print_header("Kernel reconstruction", {k: v for k, v in vars(args).items() if k != "smoke"})
    rng = np.random.default_rng(args.seed)
    d, root = args.input_dim, np.sqrt(3)
    X = rng.uniform(-root, root, (args.points, d))
    kernel = sgp.SquaredExponential(args.lengthscale)
    K = np.asarray(jax.jit(lambda X: kernel(X))(X))  # compiled, it never forms all differences
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(K)))[::-1]
    table, outcomes = [], {}
    for m in args.features:
        bounds = (np.full(d, -root), np.full(d, root))
        grid = sgp.GridEigenBasis.from_kernel(kernel, bounds, m, args.points_per_dim)
        fourier = [sgp.FourierBasis.sample(jax.random.key(s), kernel, m, d) for s in range(args.repeats)]
        chosen = [rng.choice(args.points, m, replace=False) for _ in range(args.repeats)]
        nystrom = [sgp.NystromBasis(X[rows], kernel) for rows in chosen]
        ours = relative_error(grid, kernel, X, K)
        random, inducing = (
            float(np.median([relative_error(b, kernel, X, K) for b in bases])) for bases in (fourier, nystrom)
        )
        best = float(np.sqrt(np.sum(eigenvalues[m:] ** 2)) / np.linalg.norm(eigenvalues))
        table.append([m, ours, random, inducing, best])
        outcomes[f"m = {m}: GRIEF has a smaller error than random Fourier features and random Nyström"] = ours < min(
            random, inducing
        )
    columns = ["m", "GRIEF", "Fourier (orthogonal)", "Nyström (random)", "best of rank m"]
    print_table(columns, table, "Where GRIEF is not smallest, the peer wins.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
