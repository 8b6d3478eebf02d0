"""``log p(y | θ)`` from compressed data: ``log_evidence`` chooses ``scaled`` (diagonal priors) or ``joint``."""

from .dispatch import checked_prior, evaluate, evidence_cost, joint_batch, log_evidence, require_precision
from .rounding import rounding_error

__all__ = [
    "checked_prior",
    "evaluate",
    "evidence_cost",
    "joint_batch",
    "log_evidence",
    "require_precision",
    "rounding_error",
]
