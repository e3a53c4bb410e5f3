"""The version is that of the installed package."""

from importlib import metadata
from typing import NoReturn

import pytest

import torchonline
from torchonline.core.versions import version


def test_it_is_that_of_the_package() -> None:
    assert torchonline.__version__ == version() == metadata.version("torchonline")


def test_a_checkout_that_nobody_has_installed_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    assert version() == "0+unknown"
