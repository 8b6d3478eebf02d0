"""All checks of a run in one call."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from .._internal import checks
from ..posteriors.arviz_compat import LEAST_DRAWS, draws_by_chain, pareto_k
from ..posteriors.draws import inspect_sites
from ..posteriors.predict import prediction_inputs
from ..posteriors.to_arviz import to_arviz
from ..statistics.statistics import SufficientStatistics
from .finding import Finding
from .kernel_checks import exact_findings, kernel_findings
from .kernel_error import knows_its_kernel
from .model_checks import approximates, basis_findings, domain_findings, pareto_findings, prior_findings
from .sampling_checks import chain_findings, sampler_findings

#: Share of the mean square of y that may be noise before it is asked whether the basis hides what is not.
MUCH_NOISE = 0.5
#: Draws that the basis is looked at with.
LOOKED_AT = 50


@dataclasses.dataclass(frozen=True)
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


def report(
    mcmc: Any,
    statistics: SufficientStatistics,
    X: Any = None,
    y: Any = None,
    X_new: Any = None,
    *,
    row_weights: Any = None,
    site: str | None = None,
) -> Report:
    """List what is wrong with a run in plain words, each with a remedy.

    Checks chains (R-hat at most 1.01, 400 effective draws, divergences, E-BFMI at least 0.3, tree depth), the basis
    (effective features; features used up by the data, unless the model knows its kernel and they have all of it; the
    error of a kernel that is known; duplicates; interpolation), the priors (medians in their tails, a large mean of y),
    and, if given, leave-one-out (Pareto k of the rows ``X``, ``y``), whether an exact GP on 300 of these rows is much
    better than the basis, at any lengthscale, and the domain of ``X_new``. A poor basis calls noise what it cannot
    represent, which only the comparison with an exact GP shows: pass the rows.
    O(m³) for each of 50 draws; with ``X`` and ``y``, O(m²) a row and draw.

    :param mcmc: a NumPyro ``MCMC`` after ``run(key, statistics, extra_fields=sgp.EXTRA_FIELDS)``.
    :param statistics: the statistics the model was run on.
    :param X: the training inputs, shape (n, d); with ``y``, of shape (n,) or (n, q).
    :param X_new: inputs that predictions are wanted at, shape (n_new, d).
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
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
    if (X is None) != (y is None):
        raise ValueError("report: pass both `X` and `y` of the training rows, or neither.")
    by_chain = draws_by_chain(mcmc, "report")
    extra = {name: np.asarray(values) for name, values in mcmc.get_extra_fields(group_by_chain=True).items()}
    samples = {name: values.reshape(-1, *values.shape[2:]) for name, values in by_chain.items()}
    model, depth = mcmc.sampler.model, getattr(mcmc.sampler, "_max_tree_depth", None)
    latent, _ = inspect_sites(model, statistics, site)  # what is computed from them may well be constant
    if X_new is not None:
        checks.inputs_matrix(X_new, statistics.basis.input_dim, "report")
        X_new, _ = prediction_inputs(X_new, None, statistics.basis.input_dim)
    container, rows = None, None
    if X is not None:
        container = to_arviz(mcmc, statistics, X, y, row_weights=row_weights, site=site)  # it checks the rows as well
        weights = None if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        rows = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64), weights
    count = len(next(iter(samples.values())))
    step = max(1, count // LOOKED_AT)
    thinned = {name: samples[name][::step] for name in latent}
    findings = [
        *chain_findings({name: by_chain[name] for name in latent}),
        *sampler_findings(extra, depth if depth is None else int(np.max(depth))),
        *basis_findings(model, thinned, statistics, site),
        *prior_findings(model, samples, statistics),
    ]
    missing = [name for name in ("diverging", "energy", "num_steps") if name not in extra]
    not_checked = [f"{missing}; run with `extra_fields=sgp.EXTRA_FIELDS`."] if missing else []
    if approximates(statistics.basis):
        if knows_its_kernel(model):
            findings += kernel_findings(model, thinned, statistics, site, None if rows is None else rows[0])
        else:
            not_checked.append(
                "the kernel of the basis: the model has no `kernel_at(draw, basis)`, as `models.basis_gp` has; "
                "`sgp.kernel_error` takes the kernel of a draw."
            )
    if X_new is not None:
        findings += domain_findings(statistics, X_new)
    if rows is None:
        exact = ""
        if knows_its_kernel(model):
            share = np.median(samples.get("noise_scale", np.zeros(1))) ** 2 / statistics.output_scale**2
            exact = ", and whether an exact GP does better"
            exact += f" (this run calls {share:.0%} of y noise, as a poor basis does)" if share > MUCH_NOISE else ""
        not_checked.append(f"leave-one-out{exact}; pass the training rows as `X` and `y`.")
    else:
        if knows_its_kernel(model) and statistics.num_outputs > 1:
            not_checked.append("whether an exact GP does better; of several outputs, report on each alone.")
        elif knows_its_kernel(model):
            findings += exact_findings(model, thinned, statistics, *rows, site)
        if count < LEAST_DRAWS:
            not_checked.append(f"leave-one-out; {count} draws are too few, {LEAST_DRAWS} at least.")
        else:
            with warnings.catch_warnings():  # it would say in general what the finding says of these rows
                warnings.filterwarnings("ignore", message="Estimated shape parameter of Pareto distribution")
                findings += pareto_findings(*pareto_k(container, site, "report"))
    return Report(tuple(findings), tuple(not_checked))
