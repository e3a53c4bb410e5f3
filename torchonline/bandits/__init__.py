"""Bandit learners: estimators with a confidence set, and the policies that choose by it."""
