"""Generalized linear bandits to compare with."""
