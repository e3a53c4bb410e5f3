"""Encoding of raw columns: numbers, categories, dates, text, gaps.

docs/tables.md is the guide.
"""

from torchonline.features.encoder import ColumnEncoder

__all__ = ["ColumnEncoder"]
