"""Fitted scikit-learn transformer as an encoder of rows."""

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from torchonline.core.checks import check_state_dtype, kind
from torchonline.core.messages import install_extra, listed

PYTHON_ONLY = "runs in Python only; torchonline.features.ColumnEncoder can be exported, and so can the head's policy"


class FittedTransformer(nn.Module):
    """Encoder of rows by a fitted transformer of scikit-learn or skrub.

    For a ``ColumnTransformer``, a ``Pipeline`` or skrub's ``TableVectorizer`` that was fitted on a table. It never changes. Use
    it as the encoder of a :class:`~torchonline.models.BanditHead`, alone or first in an ``nn.Sequential``::

        encoder = FittedTransformer(TableVectorizer().fit(frame))
        head = BanditHead(encoder, torchonline.bandit(encoder.dim, "binary", actions=3))
        k = head.select({"age": 31, "country": "CH"})

    The inputs are rows, or their features as :meth:`lookup` returns them. Features are not scaled again:
    :func:`torchonline.bandit` does it.

    It runs in Python only. A state dict holds the names of the features, not the transformer; a load with other names is refused.
    Lightning's checkpoints do not hold the transformer either, because it is code: pass ``head=...`` to load one. A pickle holds
    it. :class:`~torchonline.features.ColumnEncoder` has none of these limits.

    Cost of a decision: a call of ``transform``, which takes milliseconds for one row too.

    Args:
        transformer: fitted on a table with column names. It must have ``transform`` and ``get_feature_names_out``.
        dtype: dtype of the features, torch.float64, or torch.float32 before layers of single precision.

    Attributes:
        names: names of the features. ``dim`` is their number.
        columns: names of the table's columns.

    Shape:
        - features: ``(..., dim)``.

    Raises:
        TypeError, ValueError: ``transformer`` is not a transformer, is not fitted, or was fitted without column names.

    Example:
        >>> import pandas
        >>> from sklearn.compose import make_column_transformer
        >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
        >>> frame = pandas.DataFrame({"age": [20, 40], "country": ["CH", "DE"]})
        >>> transformer = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["country"]))
        >>> FittedTransformer(transformer.fit(frame)).lookup({"age": 50, "country": "CH"})
        tensor([2., 1., 0.], dtype=torch.float64)
    """

    def __init__(self, transformer: Any, *, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        check_state_dtype(dtype)
        self.dtype, self.transformer = dtype, transformer
        name = type(transformer).__name__
        if isinstance(transformer, type) or not hasattr(transformer, "transform"):
            raise TypeError(
                f"transformer: expected a fitted transformer, with a method transform, got {kind(transformer)}"
            )
        if not hasattr(transformer, "feature_names_in_"):
            got = "without column names" if hasattr(transformer, "n_features_in_") else "that is not fitted"
            raise ValueError(f"transformer: expected one fitted on a table with column names, got a {name} {got}")
        self.columns = [str(column) for column in transformer.feature_names_in_]
        try:
            self.names = [str(one) for one in transformer.get_feature_names_out()]
        except (AttributeError, ValueError) as error:
            wanted = "expected one whose get_feature_names_out names all features"
            raise ValueError(f"transformer: {wanted}, got a {name} ({error})") from error
        self.dim = len(self.names)

    def lookup(self, rows: Any) -> Tensor:
        """Return the features of rows: ``(dim)`` of one, ``(..., dim)`` of many; float64.

        Args:
            rows: a table, whose other columns are ignored; a dict of values by name; a list of dicts, or of such lists. A name
                that a dict lacks is a gap, NaN.

        Raises:
            ImportError: pandas is not installed, which holds the values of dicts.
            TypeError, ValueError: a column is missing in a table, a dict has an unknown name, the transformer refuses a value, or
                returns NaN, infinity or text.
        """
        table, shape = self._table(rows)
        try:
            found = self.transformer.transform(table)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            name = type(self.transformer).__name__
            raise ValueError(
                f"rows: expected what the {name} takes, which raised {type(error).__name__}: {error}"
            ) from error
        found = found.toarray() if hasattr(found, "toarray") else found  # sparse
        try:
            features = np.array(found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"transformer: expected numbers as features, got others: {error}") from error
        if features.shape != (len(table), self.dim):
            raise ValueError(f"transformer: expected features of shape {(len(table), self.dim)}, got {features.shape}")
        if not np.isfinite(features).all():
            bad = [self.names[place] for place in np.flatnonzero(~np.isfinite(features).all(axis=0))]
            wanted = "expected finite features, which a transformer with an imputer gives"
            raise ValueError(f"rows: {wanted}, got NaN or infinity in {listed(bad)}")
        return torch.from_numpy(features.reshape((*shape, self.dim)))

    def forward(self, features: Any) -> Tensor:
        """Return the features of rows in ``dtype``, ``(..., dim)``.

        Args:
            features: features, as :meth:`lookup` returns them; or rows, as it takes them.

        Raises:
            TypeError, ValueError: as :meth:`lookup`; or the last dimension is wrong.
        """
        if is_compiling():
            raise ValueError(
                f"encoder: expected modules that can be exported, got FittedTransformer, which {PYTHON_ONLY}"
            )
        found = features if isinstance(features, Tensor) else self.lookup(features)
        if found.dim() == 0 or found.size(-1) != self.dim:
            raise ValueError(f"features: expected {self.dim} in the last dimension, got {kind(found)}")
        return found.to(self.dtype)

    def _table(self, rows: Any) -> tuple[Any, tuple[int, ...]]:
        """Return rows as a table with the transformer's columns, and their shape."""
        if hasattr(rows, "columns"):
            if lost := [name for name in self.columns if name not in list(rows.columns)]:
                raise ValueError(f"rows: expected columns {listed(lost)}, got a table with {listed(rows.columns)}")
            return rows[self.columns], (len(rows),)
        if type(rows).__name__ == "Series" and hasattr(rows, "to_dict"):  # a row of a pandas frame
            rows = {name: value for name, value in rows.to_dict().items() if name in self.columns}
        # NumPy takes a dict for one value, and nested lists of equal lengths for an array.
        cells = np.array(rows, dtype=object)
        for row in cells.flat:
            if not isinstance(row, dict):
                wanted = "expected a table, or dicts of values by column in lists of equal lengths"
                raise TypeError(f"rows: {wanted}, got {type(row).__name__}")
            if unknown := [name for name in row if name not in self.columns]:
                raise ValueError(f"rows: expected columns {listed(self.columns)}, got {listed(unknown)}")
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"FittedTransformer: expected pandas, got none; {install_extra('tables')}") from error
        table = pandas.DataFrame(list(cells.flat), columns=self.columns)
        table = table.fillna(np.nan)
        # A column of gaps alone may be one of texts, and transformers of texts refuse floating-point columns.
        gaps = table.columns[table.isna().all()]
        return table.infer_objects().astype(dict.fromkeys(gaps, object)), cells.shape

    def get_extra_state(self) -> Tensor:
        """Return the names of the features, as the bytes of JSON."""
        return torch.tensor(list(json.dumps(self.names).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse the state of a transformer with other features."""
        if not torch.equal(state.cpu(), self.get_extra_state()):
            wanted = f"expected a state with the features {listed(self.names)}"
            raise ValueError(f"state_dict: {wanted}, got one of a transformer with others")

    def __prepare_scriptable__(self) -> nn.Module:
        raise ValueError(f"encoder: expected modules that can be compiled, got FittedTransformer, which {PYTHON_ONLY}")

    def extra_repr(self) -> str:
        return f"{type(self.transformer).__name__}, {len(self.columns)} columns, {self.dim} features"
