"""BibTeX of this library and of the papers that its learners come from."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from torchonline.core.options import is_ours
from torchonline.core.versions import home, version

# The year of the latest release, or of the next one.
YEAR = 2026
# Papers of one value of an option: the option's name and this value.
OF_OPTION = {"neu2015explore": ("rule", "exp4"), "kim2026jointly": ("is_weighted", True)}
LEARNERS = re.compile(r"^  learners = \{(.*)\},\n", re.MULTILINE)


@cache
def entries() -> dict[str, str]:
    """Return the entries of ``papers.bib`` by key, each with its field ``learners``."""
    text = files("torchonline.core").joinpath("papers.bib").read_text("utf-8")
    return {key: entry for entry, key in re.findall(r"^(@\w+\{(\w+),\n.*?^\})$", text, re.MULTILINE | re.DOTALL)}


@cache
def keys_by_class() -> dict[str, list[str]]:
    """Return the keys of the papers of each class that ``papers.bib`` names."""
    keys: dict[str, list[str]] = {}
    for key, entry in entries().items():
        for name in LEARNERS.findall(entry)[0].split(", "):
            keys.setdefault(name, []).append(key)
    return keys


class Citable:
    """Mixin for learners, policies, heads and optimizers, which name their papers."""

    def cite(self) -> None:
        """Print the BibTeX of this library, and of the papers of this object.

        The papers of its parts are included. A heuristic of this library has no paper: its docstring says where it comes from.
        :func:`torchonline.core.citations.bibtex` returns the text.
        """
        cite(self)


def papers(of: Any) -> list[str]:
    """Return the keys of the papers of an object and its parts, each once."""
    classes = [(part, cls) for part in _parts(of) for cls in type(part).__mro__ if is_ours(cls)]
    found = [(part, key) for part, cls in classes for key in keys_by_class().get(cls.__name__, ())]
    return list(dict.fromkeys(key for part, key in found if _is_used(key, part)))


def _is_used(key: str, part: Any) -> bool:
    """Return whether an object has the option that a paper is about."""
    name, value = OF_OPTION.get(key, ("", None))
    return not name or getattr(part, name) == value


def bibtex(of: Any = None) -> str:
    r"""Return the BibTeX of this library and of a learner's papers.

    Args:
        of: a learner, policy, head or optimizer of this library, or a subclass's; a module with such parts; or None for only
            the library.

    Raises:
        TypeError: ``of`` is anything else, such as a class, a module without such parts, or one in TorchScript, whose papers
            are not known.

    Example:
        >>> print(bibtex(RidgeRegression(2)).partition("@inproceedings")[2])
        {abbasi2011improved,
          author = {Abbasi-Yadkori, Yasin and P{\'a}l, D{\'a}vid and Szepesv{\'a}ri, Csaba},
          title = {{Improved Algorithms for Linear Stochastic Bandits}},
          booktitle = {Advances in Neural Information Processing Systems},
          year = {2011},
        }
    """
    wanted = "expected a learner, policy, head or optimizer, or None"
    if isinstance(of, type):
        raise TypeError(f"of: {wanted}, got the class {of.__name__}; construct one, because its parts are cited too")
    if isinstance(of, torch.jit.ScriptModule):
        raise TypeError(f"of: {wanted}, got TorchScript, whose papers are not known; cite the module it was made from")
    if of is not None and not any(is_ours(cls) for part in _parts(of) for cls in type(part).__mro__):
        raise TypeError(f"of: {wanted}, got {type(of).__name__}")
    return "\n\n".join([_library(), *(LEARNERS.sub("", entries()[key]) for key in papers(of))])


def cite(of: Any = None) -> None:
    """Print the BibTeX of this library and of a learner's papers.

    ``torchonline.cite()`` prints only the library's entry. ``learner.cite()`` of every learner, policy, head and optimizer is
    ``torchonline.cite(learner)`` and names the papers of its parts too. :func:`torchonline.core.citations.bibtex` returns the
    text. A heuristic of this library has no paper: its docstring says where it comes from.

    Args:
        of: a learner, policy, head or optimizer; None for only the library.

    Raises:
        TypeError: ``of`` is anything else, such as a class, a module without such parts, or one in TorchScript, whose papers
            are not known.
    """
    print(bibtex(of))


def _library() -> str:
    """Return the entry of this library, with the release's number or the next one's."""
    number = version()
    release = re.match(r"\d+(\.\d+)+((a|b|rc)\d+)?(\.post\d+)?", number)
    fields = {
        "author": "{The torchonline developers}",
        "title": "{torchonline: online learners as PyTorch modules}",
        "year": str(YEAR),
        "url": home(),
        "version": release[0] if release else "",
        "note": "" if release and release[0] == number else "development version",
    }
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items() if value]
    return f"@software{{torchonline,\n{''.join(lines)}}}"


def _parts(of: Any) -> Iterator[Any]:
    """Yield an object, its modules, its learners, and the noise of all of these."""
    for part in of.modules() if isinstance(of, nn.Module) else (of,):
        yield part
        yield getattr(part, "noise", None)
    for learner in getattr(of, "learners", ()):
        yield from _parts(learner)
