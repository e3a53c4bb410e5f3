"""Fixtures of the tests of features."""

import weakref

import pytest
import torch


@pytest.fixture(autouse=True)
def _scripts_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share no compiled function with other tests: torch 2.13 mixes up what ran with and without its optimizer."""
    monkeypatch.setattr(torch.jit._state, "_jit_caching_layer", weakref.WeakKeyDictionary())
    monkeypatch.setattr(torch.jit._recursive, "concrete_type_store", torch.jit._recursive.ConcreteTypeStore())
