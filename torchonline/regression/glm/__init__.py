"""Generalized linear bandits: a link between the predictor and the mean reward."""
