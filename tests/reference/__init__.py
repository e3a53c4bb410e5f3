"""Slow NumPy float64 versions of the learners, written from their equations alone: dense matrices, one loop, no cleverness."""
