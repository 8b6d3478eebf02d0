"""Whether a basis can have the kernels that a model has at some hyperparameters: known after a fit, or of draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..statistics.statistics import SufficientStatistics


def unsuited_basis(model: Callable[..., Any], statistics: Any, values: dict[str, Any]) -> str | None:
    """What is wrong with the basis of the statistics at hyperparameters, and the remedy, in words.

    Of models that know their kernel, or those of parts (:class:`~ppl_sgp.models.KernelModel`, ``models.additive``);
    nothing is known of others.

    :param values: the latent sites by name, one draw.
    """
    if not isinstance(statistics, SufficientStatistics):
        return None
    basis, moments = statistics.basis.unrotated, statistics.moments
    of_parts = getattr(model, "part_kernels", None)
    if of_parts is not None and basis.parts:
        kernels = of_parts(values, basis)
        pairs = [
            (f"part {name!r}: ", part, kernels[name]) for name, part in zip(basis.part_names, basis.parts, strict=True)
        ]
    elif callable(getattr(model, "kernel_at", None)):
        standing = [part for part in basis.parts if part.approximates_kernel]
        pairs = [("", standing[0] if len(standing) == 1 else basis, model.kernel_at(values, basis))]  # type: ignore[attr-defined]
    else:
        return None
    for name, part, kernel in pairs:
        found = part.unsuited(kernel, moments.x_min, moments.x_max) if part.approximates_kernel else None
        if found is not None:
            return f"{name}{found[0]} {found[1]}"
    return None
