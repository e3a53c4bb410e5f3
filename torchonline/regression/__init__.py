"""Estimators: online regressions with confidence sets."""
