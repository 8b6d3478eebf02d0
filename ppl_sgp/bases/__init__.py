"""Frozen feature maps φ: R^d → R^m, one family a file."""
