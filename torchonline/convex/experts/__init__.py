"""Learners whose decision is a weight for each of several experts."""
