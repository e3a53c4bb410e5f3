"""Bandit learners: estimators with a confidence set, and policies over them."""
