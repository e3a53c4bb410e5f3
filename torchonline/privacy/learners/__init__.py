"""Learners whose published decisions are differentially private."""
