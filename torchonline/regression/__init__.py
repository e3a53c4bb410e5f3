"""Estimators: regressions that learn one round at a time and know how uncertain they are."""
