"""Logits of classes from weights."""

from __future__ import annotations

import numpy as np


def logits_of(weights: np.ndarray, Phi: np.ndarray) -> np.ndarray:
    """Logits (n, K) of K classes from weights (C, m) and features (n, m); C = 1 for two classes, the first at zero."""
    logits = Phi @ weights.T
    return np.concatenate([np.zeros_like(logits), logits], axis=1) if len(weights) == 1 else logits
