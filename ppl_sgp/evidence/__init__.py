"""``log p(y | θ)`` from compressed data: ``log_evidence`` chooses ``scaled`` (diagonal priors) or ``joint``."""

from .log_evidence import check_prior, evaluate, evidence_cost, log_evidence
from .rounding import rounding_error

__all__ = ["check_prior", "evaluate", "evidence_cost", "log_evidence", "rounding_error"]
