"""SVGP and SWSGP by minibatches: real sets against GPyTorch in the same time, and steps at a hundred thousand points.

(a) Split 0 of kin40k and keggdirected, inputs and outputs standardised: RMSE in standard deviations of y, and mean log
    density in nats a row. GPyTorch's SVGP (squared exponential with a lengthscale an input, as many points, batches of
    the same size, Adam at 0.01) has the seconds that ours took, in an environment of its own.
(b) Milliseconds a step of SWSGP with 16 neighbours, for 1,000 to 100,000 points.

    python benchmarks/svgp.py --data FOLDER                                     # half an hour, float32
    python benchmarks/svgp.py --data FOLDER --gpytorch ENVIRONMENT/bin/python   # pip install gpytorch
    python benchmarks/svgp.py --smoke                                           # a minute, meaningless numbers
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from common import duration, print_conclusion, print_header, print_table
from uci_files import read

import ppl_sgp as sgp
from ppl_sgp.stochastic._swsgp import NeighbourTable, optimiser, swsgp_step

NAMES = ("kin40k", "keggdirected")
#: Published: RMSE and log density of SVGP, 512 points, and of the best quadruply stochastic GP (Evans 2022, tables 6.2
#: and 6.3, means of five splits).
PUBLISHED = {
    "kin40k": (("SVGP, published", 0.171, 0.089), ("QSGP, published", 0.154, 0.348)),
    "keggdirected": (("SVGP, published", 0.124, 0.953), ("QSGP, published", 0.124, 0.821)),
}
#: Growth of a step from the fewest to the most points that is flat.
FLAT = 1.2

GPYTORCH = """
import sys, time
import gpytorch, numpy as np, torch
data = np.load(sys.argv[1])
seconds, points, batch = float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
X, y, X_new, y_new = (torch.as_tensor(data[name], dtype=torch.float32) for name in ("X", "y", "X_new", "y_new"))
class Model(gpytorch.models.ApproximateGP):
    def __init__(self, Z):
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True))
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1]))
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
model = Model(X[torch.randperm(len(X))[:points]].clone())
likelihood = gpytorch.likelihoods.GaussianLikelihood()
bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
start, steps = time.perf_counter(), 0
while time.perf_counter() - start < seconds:
    order = torch.randperm(len(X))
    for rows in order.split(batch):
        optimiser.zero_grad()
        loss = -bound(model(X[rows]), y[rows])
        loss.backward()
        optimiser.step()
        steps += 1
        if time.perf_counter() - start > seconds:
            break
model.eval(), likelihood.eval()
with torch.no_grad():
    found = [likelihood(model(part)) for part in X_new.split(1000)]
mean, variance = (torch.cat([getattr(each, name) for each in found]).numpy() for name in ("mean", "variance"))
error = y_new.numpy() - mean
print(np.sqrt(np.mean(error**2)), np.mean(-0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)), steps)
"""


def split(folder: Path | None, name: str) -> dict[str, np.ndarray]:
    X, y, mask = read(folder, name)
    test = mask[:, 0]
    spread = X[~test].std(axis=0)
    X = (X - X[~test].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    y = (y - y[~test].mean()) / y[~test].std()
    return {"X": X[~test], "y": y[~test], "X_new": X[test], "y_new": y[test]}


def scores(prediction, y_new: np.ndarray) -> tuple[float, float]:
    return float(np.sqrt(np.mean((prediction.mean - y_new) ** 2))), float(np.mean(prediction.log_density(y_new)))


def of_gpytorch(args: argparse.Namespace, data: dict[str, np.ndarray], seconds: float) -> tuple[float, float] | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **data)
        command = [args.gpytorch, "-c", GPYTORCH, str(path), str(seconds), str(args.points), str(args.batch_size)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"\nGPyTorch is left out: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
        return None
    rmse, density, steps = done.stdout.split()[-3:]
    print(f"GPyTorch made {steps} steps.")
    return float(rmse), float(density)


def on_real_sets(args: argparse.Namespace) -> dict[str, bool]:
    outcomes = {}
    for name in args.names:
        data, key = split(args.data, name), jax.random.key(0)
        options = {
            "num_steps": args.steps,
            "batch_size": min(args.batch_size, len(data["X"])),
            "progress": args.progress,
        }
        start = time.perf_counter()
        fit = sgp.stochastic.svgp(
            key, data["X"], data["y"], num_points=args.points, learning_rate=args.learning_rate, **options
        )
        seconds = time.perf_counter() - start
        ours = scores(fit.predict(data["X_new"]), data["y_new"])
        table = [["SVGP", *ours, duration(seconds)]]
        print(name, *table[-1], flush=True)
        theirs = of_gpytorch(args, data, seconds) if args.gpytorch else None
        if theirs:
            table.append(["GPyTorch's SVGP", *theirs, duration(seconds)])
            print(name, *table[-1], flush=True)
            outcomes[f"{name}: density above GPyTorch's in the same time: {ours[1] - theirs[1]:.3f} nats"] = (
                ours[1] > theirs[1]
            )
        start = time.perf_counter()
        many = sgp.stochastic.swsgp(
            key,
            data["X"],
            data["y"],
            num_points=min(args.many_points, len(np.unique(data["X"], axis=0)) // 2),
            num_neighbours=args.neighbours,
            num_steps=args.many_steps,
            progress=args.progress,
        )
        took = time.perf_counter() - start
        table.append(
            [f"SWSGP, {len(many.points):,} points", *scores(many.predict(data["X_new"]), data["y_new"]), duration(took)]
        )
        published = PUBLISHED.get(name, ())
        table += [[method, rmse, density, ""] for method, rmse, density in published]
        print_table([name, "RMSE", "log density", "time"], table)
        if published:
            best = max(density for _, _, density in published[:1])
            outcomes[f"{name}: density above SVGP's as published: {ours[1]:.3f}"] = ours[1] > best
    return outcomes


def flat_steps(args: argparse.Namespace) -> dict[str, bool]:
    """The loop of steps as a fit makes them, with batches and unions, neighbours of the rows known."""
    rng, table, milliseconds = np.random.default_rng(0), [], []
    X = rng.standard_normal((max(args.counts), 4))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(len(X))
    start = {"lengthscale": [1.0] * 4, "amplitude": 1.0, "noise_scale": 0.1}
    seconds: dict[int, list[float]] = {count: [] for count in args.counts}
    runs = {}
    for count in args.counts:
        options = {"points": X[:count], "num_neighbours": 16, "batch_size": 64, "held_out": None, "start": start}
        fit = sgp.stochastic.swsgp(jax.random.key(0), X[:2000], y[:2000], num_steps=10, **options)
        batches, adam = sgp.stochastic.row_batches(X[:2000], y[:2000], 64), optimiser(0.01, 0, 1000)
        neighbours, problem = NeighbourTable(fit.problem, adam, X[:2000]), jax.device_put(fit.problem)

        def steps(state, num_steps, fit=fit, batches=batches, adam=adam, neighbours=neighbours, problem=problem):
            for t in range(num_steps):
                batch = batches.draw(jax.random.key(t))
                points = neighbours.at(state, batch)
                rows = batch.X, batch.y, np.asarray(batch.scale, batch.X.dtype), *points
                state, _ = swsgp_step(adam, 0.01, (0, 1000), problem, state, rows)
            return jax.block_until_ready(state)

        runs[count] = [steps, steps(fit.training.last, 10)]
    for _ in range(args.repeats):
        for count, run in runs.items():
            began = time.perf_counter()
            run[1] = run[0](run[1], args.timed_steps)
            seconds[count].append((time.perf_counter() - began) / args.timed_steps)
    for count in args.counts:
        milliseconds.append(1e3 * float(np.median(seconds[count])))
        table.append([count, milliseconds[-1]])
    print_table(["points", "ms a step"], table, "64 rows, 16 neighbours, 4 inputs")
    growth = milliseconds[-1] / milliseconds[0]
    return {f"a step grows by less than {FLAT:g} from the fewest to the most points: {growth:.2f}": growth < FLAT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with a folder for each set; generated rows without")
    parser.add_argument("--names", nargs="+", default=list(NAMES))
    parser.add_argument("--gpytorch", help="the interpreter of an environment with GPyTorch")
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--many-points", type=int, default=20_000)
    parser.add_argument("--neighbours", type=int, default=16)
    parser.add_argument("--many-steps", type=int, default=5000)
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--timed-steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("sets", "steps"))
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.names, args.points, args.steps, args.batch_size, args.many_steps = ["generated"], 8, 30, 20, 30
        args.neighbours, args.counts, args.timed_steps, args.repeats = 4, [50, 200], 20, 1
    settings = {"points": args.points, "steps": args.steps, "batch_size": args.batch_size}
    print_header("SVGP and SWSGP", settings)
    outcomes = {} if args.only == "steps" else on_real_sets(args)
    outcomes |= {} if args.only == "sets" else flat_steps(args)
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
