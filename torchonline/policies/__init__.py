"""Policies: rules of choice over one or several estimators."""
