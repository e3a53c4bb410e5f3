"""Tests of torchonline."""
