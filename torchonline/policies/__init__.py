"""Policies: whatever decides, by a rule of choice over one or several estimators."""
