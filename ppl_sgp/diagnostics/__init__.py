"""Checking a posterior: leave-one-out, ArviZ, calibration."""
