"""All checks of a run in one call."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._internal.shown import html_table
from ..evidence.inducing import IN_BLOCKS
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..grids.grid import Grid
from ..models.kernel_model import KernelModel
from ..posteriors.arviz_compat import LEAST_DRAWS, good_k, pareto_smoothed
from ..posteriors.observed_data import COMPRESSED, input_dim, new_inputs, recipe_of
from ..posteriors.posterior import Posterior, posterior
from ..posteriors.predict import prediction_inputs
from ..posteriors.site_draws import InducingParameters, MarginalParameters
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.rows import RowArrays
from ..statistics.statistics import SufficientStatistics
from ..tables.recipe import rows_of_table
from .finding import Finding
from .grid_checks import grid_findings
from .inducing_checks import point_findings
from .kernel_checks import exact_findings, kernel_findings
from .likelihood_checks import correction_findings, expansion_findings
from .model_checks import basis_findings, domain_findings, noise_findings, pareto_findings, prior_findings
from .sampling_checks import chain_findings, sampler_findings

#: Share of the mean square of y that may be noise before it is asked whether the basis hides what is not.
MUCH_NOISE = 0.5
#: Observed cells of a grid up to which each is left out; and rows that are, of more of them a random part.
MOST_CELLS, MOST_LEFT_OUT = 2000, 5000
#: Draws that the basis is looked at with.
LOOKED_AT = 50


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """What :func:`report` found; prints as a list.

    :ivar findings: what is wrong, each with its remedy.
    :ivar not_checked: what could not be checked, and why.
    """

    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        count = len(self.findings)
        lines = ["Nothing found." if self.ok else f"{count} finding{'s' if count > 1 else ''}:"]
        lines += [f"- {each.check}: {each.symptom}\n  -> {each.remedy}" for each in self.findings]
        lines += [f"Not checked: {each}" for each in self.not_checked]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = [(each.check, f"{each.symptom} → {each.remedy}") for each in self.findings]
        rows += [("not checked", each) for each in self.not_checked]
        return html_table("Nothing found" if self.ok else "Findings", rows)


def report(
    mcmc: Any,
    statistics: SufficientStatistics | Rows | ChunkedRows | None = None,
    X: Any = None,
    y: Any = None,
    X_new: Any = None,
    *,
    row_weights: Any = None,
    offset: Any = None,
    site: str | None = None,
) -> Report:
    """List what is wrong with a run in plain words, each with a remedy.

    Checks chains (R-hat at most 1.01, 400 effective draws, divergences, E-BFMI at least 0.3, tree depth), the basis
    (effective features; features used up by the data, unless the model knows its kernel and they have all of it; the
    error of a kernel that is known; duplicates; interpolation), the priors (medians in their tails, a large mean of y),
    and, if given, leave-one-out (Pareto k of the rows ``X``, ``y``), whether an exact GP on 300 of these rows is much
    better than the basis, at any lengthscale, and the domain of ``X_new``. A poor basis calls noise what it cannot
    represent, which only the comparison with an exact GP shows: pass the rows. Of more than 5,000 rows, 5,000 at random
    are left out. O(m³) for each of 50 draws; with ``X`` and ``y``, O(m²) for each of these rows and draws.

    :param mcmc: a NumPyro ``MCMC`` after ``run(key, statistics, extra_fields=sgp.EXTRA_FIELDS)``; or the
        :func:`~ppl_sgp.posterior` made of it, which knows its statistics.
    :param statistics: the statistics the model was run on, or of an exact GP or inducing points the rows, which are
        ``X`` and ``y``: then nothing is said of a basis, and of points whether they are enough.
    :param X: the training inputs, shape (n, d); with ``y``, of shape (n,) or (n, q).
    :param X_new: inputs that predictions are wanted at, shape (n_new, d).
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
    :param offset: of a compressed likelihood, the offsets of the training rows, if any.
    :param site: name of the observed site, if the model has several.
    :raises ValueError: if only one of ``X`` and ``y`` is given, or the run has no draws.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
        >>> mcmc = MCMC(NUTS(sgp.models.reweighted_basis()), num_warmup=20, num_samples=20, progress_bar=False)
        >>> mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
        >>> [finding.check for finding in sgp.report(mcmc, stats).findings][0]
        'one chain'
    """
    of_run = mcmc if isinstance(mcmc, Posterior) else posterior(mcmc.sampler.model, mcmc, statistics, site=site)
    run, data = of_run.run, of_run.data
    X, y, row_weights = rows_of_table(recipe_of(data), X, y, row_weights)
    if (X is None) != (y is None):
        raise ValueError("report: pass both `X` and `y` of the training rows, or neither.")
    if X is None and row_weights is not None:
        raise ValueError(
            "report: `row_weights` are those of the training rows; pass `X` and `y` too, or leave them out."
        )
    if X_new is not None:
        X_new = new_inputs(data, X_new)
        X_new, _ = prediction_inputs(X_new, None, input_dim(data), "report")
    missing = [name for name in ("diverging", "energy", "num_steps") if name not in run.extra]
    not_checked = [f"{missing}; run with `extra_fields=sgp.EXTRA_FIELDS`."] if missing else []
    left_out, rows = None, None
    if isinstance(data, Grid) and data.num_rows > MOST_CELLS:
        not_checked.append(
            f"leave-one-out of {data.num_rows} cells, a solution for each and draw; ask some, as in "
            "`posterior.spaced(50).leave_one_out(rows=slice(0, 200))`."
        )
    elif X is not None or not isinstance(data, COMPRESSED):
        num_rows = data.num_rows if y is None else len(np.atleast_1d(y))
        chosen = _left_out(num_rows)
        # It checks the rows as well.
        left_out = of_run.leave_one_out(X, y, row_weights=row_weights, rows=chosen, offset=offset)
        if len(chosen) < num_rows:
            not_checked.append(f"leave-one-out of {num_rows - len(chosen)} rows; {len(chosen)} at random were.")
    if X is not None:
        weights = None if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        rows = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64), weights
    findings = [
        # Of latent sites: what is computed from them may well be constant.
        *chain_findings({name: run.by_chain[name] for name in of_run.latent}),
        *sampler_findings(run.extra, run.max_tree_depth),
        *prior_findings(of_run),
    ]
    found, skipped = _of_data(of_run, rows, offset)
    findings, not_checked = findings + found, not_checked + skipped
    if X_new is not None:
        findings += domain_findings(data, X_new)
    if left_out is not None:
        if of_run.num_draws < LEAST_DRAWS:
            not_checked.append(f"leave-one-out; {of_run.num_draws} draws are too few, {LEAST_DRAWS} at least.")
        else:
            findings += pareto_findings(chosen, *_pareto_k(left_out), of_run.outcomes is None)
    return Report(tuple(findings), tuple(not_checked))


def _left_out(num_rows: int) -> np.ndarray:
    """Numbers of the rows that are left out: all, or some that stay the same."""
    if num_rows <= MOST_LEFT_OUT:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).choice(num_rows, MOST_LEFT_OUT, replace=False))


def _pareto_k(log_density: np.ndarray) -> tuple[np.ndarray, float]:
    """Tail indices of weights that leave rows out, of several outputs the largest, (rows,); and what is good."""
    num_draws, num_rows = log_density.shape[:2]
    flat = log_density.reshape(num_draws, -1)
    known = ~np.isnan(flat).any(axis=0)  # of groups, each row is seen in some columns only
    k = np.full(flat.shape[1], -np.inf)
    k[known] = pareto_smoothed(-flat.T[known])[1]
    return k.reshape(num_rows, -1).max(axis=1), good_k(num_draws)


def _of_data(posterior: Posterior, rows: RowArrays | None, offset: Any) -> tuple[list[Finding], list[str]]:
    """What is wrong with what the model observes, and what could not be checked of it."""
    data = posterior.data
    if isinstance(data, CompressedLikelihood):
        return _of_likelihood(posterior, data, rows, offset)
    if isinstance(data, SufficientStatistics):
        return _of_basis(posterior, rows)
    return ([], []) if posterior.outcomes is not None else _of_rows(posterior)


def _of_likelihood(
    posterior: Posterior, data: CompressedLikelihood, rows: RowArrays | None, offset: Any
) -> tuple[list[Finding], list[str]]:
    """What is wrong with an expansion, its basis and its correction."""
    findings, not_checked = [*expansion_findings(data)], list[str]()
    if posterior.importance is None and not isinstance(posterior.draws.structure(), MarginalParameters):
        return findings, not_checked  # explicit weights with the exact likelihood
    if posterior.importance is None:
        findings += basis_findings(posterior.spaced(LOOKED_AT))
    weights = posterior.importance
    if weights is None and rows is not None and posterior.num_draws >= LEAST_DRAWS:
        weights = posterior.importance_weights(rows[0], rows[1], row_weights=rows[2], offset=offset)
    if weights is None:
        not_checked.append(
            "the expansion of the likelihood: pass the training rows as `X` and `y`, or what "
            "`posterior.importance_weights(X, y)` makes of them, with 25 draws or more."
        )
    else:
        findings += correction_findings(weights)
    return findings, not_checked


def _of_rows(posterior: Posterior) -> tuple[list[Finding], list[str]]:
    """What is wrong with the noise, an estimate of a grid or inducing points, and what could not be checked of them."""
    parameters, rows = posterior.parameters(), posterior.data
    findings = [*noise_findings(rows, parameters.noise_scale)]
    if isinstance(rows, Grid):
        return [*findings, *grid_findings(posterior)], []
    if not isinstance(rows, Rows | ChunkedRows) or not isinstance(parameters, InducingParameters):
        return findings, []
    if rows.num_outputs > 1 or parameters.method in IN_BLOCKS:
        return findings, [
            "whether there are enough inducing points; that is known of one output, and not of blocks of rows."
        ]
    return [*findings, *point_findings(rows, parameters)], []


def _of_basis(posterior: Posterior, rows: RowArrays | None) -> tuple[list[Finding], list[str]]:
    """What is wrong with a basis and its kernel, and what could not be checked of them."""
    statistics, looked_at = posterior.statistics, posterior.spaced(LOOKED_AT)
    findings, not_checked = [*basis_findings(looked_at)], []
    knows_its_kernel = isinstance(posterior.model, KernelModel)
    if statistics.basis.approximates_kernel:
        if knows_its_kernel:
            findings += kernel_findings(looked_at, None if rows is None else rows[0])
        else:
            not_checked.append(
                "the kernel of the basis: the model has no `kernel_at(draw, basis)`, as `models.basis_gp` has; "
                "`sgp.kernel_error` takes the kernel of a draw."
            )
    if rows is None:
        exact = ""
        if knows_its_kernel:
            share = np.median(posterior.samples.get("noise_scale", np.zeros(1))) ** 2 / statistics.output_scale**2
            exact = ", and whether an exact GP does better"
            exact += f" (this run calls {share:.0%} of y noise, as a poor basis does)" if share > MUCH_NOISE else ""
        not_checked.append(f"leave-one-out{exact}; pass the training rows as `X` and `y`.")
    elif knows_its_kernel and statistics.num_outputs > 1:
        not_checked.append("whether an exact GP does better; of several outputs, report on each alone.")
    elif knows_its_kernel:
        findings += exact_findings(looked_at, *rows)
    return findings, not_checked
