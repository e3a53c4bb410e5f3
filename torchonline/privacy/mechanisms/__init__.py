"""Additive mechanisms: noise on prefix sums."""
