"""Generalized linear bandits from other papers."""
