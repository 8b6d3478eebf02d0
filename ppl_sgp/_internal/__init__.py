"""Shared by all stages: validation, pytrees, batches. Not part of the public API."""
