"""What bases made of several others share: their priors, their inputs, the one to which a feature belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..kernels import Kernel
from ..priors import DiagonalPrior, WeightPrior
from .basis import Basis


def own_priors(bases: Sequence[Basis], kernels: Sequence[Kernel | WeightPrior], owner: str) -> list[WeightPrior]:
    """The prior of each basis for its kernel, or the one that was given, of the right size.

    :raises ValueError: unless there is one kernel or prior for each basis.
    """
    if not isinstance(kernels, tuple | list) or len(kernels) != len(bases):
        got = f"{len(kernels)}" if isinstance(kernels, tuple | list) else type(kernels).__name__
        raise ValueError(
            f"{owner}.weight_prior needs a tuple of {len(bases)} kernels or priors, one for each basis; got {got}."
        )
    return [
        kernel.sized(basis.num_features) if isinstance(kernel, WeightPrior) else basis.weight_prior(kernel)
        for basis, kernel in zip(bases, kernels, strict=True)
    ]


def require_same_inputs(bases: Sequence[Basis], owner: str) -> None:
    """Refuse bases of different numbers of inputs."""
    if len({basis.input_dim for basis in bases}) > 1:
        raise ValueError(
            f"{owner}: bases must take the same inputs; got {', '.join(str(basis.input_dim) for basis in bases)} "
            "columns. Wrap one that sees some of them in `SelectedColumns(basis, columns, input_dim)`."
        )


def combined(
    owner: str,
    parts: tuple[Any, ...],
    of_bases: Callable[[tuple[Basis, ...]], Basis],
    of_diagonals: Callable[[tuple[DiagonalPrior, ...]], WeightPrior],
    of_priors: Callable[[tuple[WeightPrior, ...]], WeightPrior],
) -> Any:
    """What is made of several bases, or of several priors: of diagonal ones a diagonal one.

    :raises ValueError: for anything else, and for bases of different numbers of inputs.
    """
    if parts and all(isinstance(part, Basis) for part in parts):
        require_same_inputs(parts, owner)
        return of_bases(parts)
    if parts and all(isinstance(part, DiagonalPrior) for part in parts):
        return of_diagonals(parts)
    if parts and all(isinstance(part, WeightPrior) for part in parts):
        return of_priors(parts)
    raise ValueError(
        f"{owner} takes bases, or priors, one or more of either; got "
        f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}."
    )


def first_known(bases: Sequence[Basis], x: Any) -> str | None:
    """Why features are not finite at x, by the first of the bases that knows."""
    reasons = (basis.not_finite_at(x) for basis in bases)
    return next((reason for reason in reasons if reason is not None), None)
