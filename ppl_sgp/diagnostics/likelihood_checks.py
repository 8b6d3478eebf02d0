"""What can be wrong with an expansion of a likelihood, and with its correction."""

from __future__ import annotations

from collections.abc import Iterator

from ..expansion.compressed_likelihood import CompressedLikelihood
from ..posteriors.importance import LEAST_SHARE, NEARLY_ALL, ImportanceWeights
from .finding import Finding


def expansion_findings(data: CompressedLikelihood) -> Iterator[Finding]:
    """Whether the expansion is around the posterior at its reference prior."""
    if not data.converged:
        yield Finding(
            "expansion",
            f"The expansion of the likelihood has not converged: {data.reason}.",
            "Compress again with more `max_passes`; look at `.trace`, and at rows of extreme outcomes or offsets.",
        )


def correction_findings(weights: ImportanceWeights) -> Iterator[Finding]:
    """Whether importance weights against the exact likelihood can be trusted, and so the compressed posterior."""
    if weights.reliable:
        return
    shown = (
        f"Importance weights against the exact likelihood have a Pareto k of {weights.pareto_k:.2f} (at most "
        f"{weights.good_k:.2f}) and {weights.share:.0%} effective draws (at least {LEAST_SHARE:.0%}; with "
        f"{NEARLY_ALL:.0%} k does not matter)"
    )
    yield Finding(
        "correction",
        f"{shown}: neither the compressed posterior nor the corrected one is to be believed.",
        "Expand around what was found: `sgp.compress_likelihood(..., model=model)`, or more `rounds`. Where events are "
        "few no expansion is good: sample the exact likelihood, `sgp.explicit_model(model)` of "
        "`sgp.explicit_rows(stats, X, y)`.",
    )
