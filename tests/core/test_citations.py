"""Every public learner is cited, by the papers that its docstring names."""

import inspect
import re
import sys
import types

import pytest
import torch

import torchonline
import torchonline.models
from tests import convex_learners, learners, private_learners
from torchonline import DPTOFW, OFUL, LocalGLB, ParameterFree, baselines
from torchonline.bandits.policies import Policy
from torchonline.core import citations
from torchonline.core.learner import Learner

CASES = {case.cls: case for case in (*private_learners.CASES, *convex_learners.CASES, *learners.CASES)}
PUBLIC = [
    getattr(package, name)
    for package in (torchonline, baselines, torchonline.models)
    for name in package.__all__
    if hasattr(getattr(package, name), "cite") and not isinstance(getattr(package, name), types.ModuleType)
]


def plain(text: str) -> str:
    """Return a text in small letters, without accents, braces and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"\{\\\W(\w)\}|[{}]", r"\1", text)).lower()


def docstrings(cls: type) -> str:
    """Return the docstrings of a class, of what it derives from and of their modules."""
    found = [(base.__doc__, sys.modules[base.__module__].__doc__) for base in cls.__mro__]
    return plain(" ".join(text for pair in found for text in pair if text))


def class_named(name: str) -> type:
    """Return a class that the table names."""
    loaded = (module for key, module in sys.modules.items() if key.startswith("torchonline"))
    return next(value for module in loaded for key, value in vars(module).items() if key == name)


def test_all_kinds_of_learners_are_public() -> None:
    kinds = (Learner, Policy, ParameterFree, baselines.NoisySGD)
    wanted = {
        value
        for package in (torchonline, baselines)
        for value in (getattr(package, name) for name in package.__all__)
        if inspect.isclass(value) and issubclass(value, kinds)
    }
    assert wanted <= set(PUBLIC)
    assert {torchonline.models.BanditHead, torchonline.models.NeuralLinearBandit} <= set(PUBLIC)


def test_every_public_learner_is_cited() -> None:
    """By papers of its own or of its parts, or the table says that it has none."""
    for cls in PUBLIC:
        is_known = any(base.__name__ in citations.OF_CLASS for base in cls.__mro__)
        assert is_known or cls is ParameterFree or issubclass(cls, Policy), cls
        if cls in CASES:
            found = citations.papers(CASES[cls].build())
            assert set(found) <= set(citations.PAPERS), cls
            has_paper = "Reference:" in (cls.__doc__ or "") and "Of this library." not in cls.__doc__
            assert found or not has_paper, cls


def test_papers_of_a_class_are_those_of_its_docstring() -> None:
    """The docstring has the names of the authors, and the title or the year."""
    for name, keys in citations.OF_CLASS.items():
        text = docstrings(class_named(name))
        # "That of DPTOFW", "the paper of OONS": the first learner of a paper names it for the others.
        if re.search(r"(that|paper) of :class:", text) and name not in ("DPTOFW", "OONS"):
            continue
        for paper in (citations.PAPERS[key] for key in keys):
            surnames = [plain(author.partition(",")[0]) for author in paper.authors.split(" and ")]
            is_short = f"{surnames[0]} et al." in text
            assert is_short or all(surname.split()[-1] in text for surname in surnames), (name, surnames)
            assert plain(paper.title).partition(":")[0] in text or str(paper.year) in text, (name, paper.title)


def test_all_papers_are_used() -> None:
    assert {key for keys in citations.OF_CLASS.values() for key in keys} == set(citations.PAPERS)


def test_entries_are_bibtex() -> None:
    for key, paper in citations.PAPERS.items():
        text = paper.bibtex(key)
        assert text.count("{") == text.count("}"), key
        assert key.startswith(plain(paper.authors).partition(",")[0].partition("-")[0].split()[-1]), key
        assert str(paper.year) in key, key
        assert all("," in author for author in paper.authors.split(" and ")), key
        assert re.fullmatch(r"@(misc|article|inproceedings)\{\w+,\n(  \w+ = \{.+\},\n)+\}", text), key


def test_cite_prints(capsys: pytest.CaptureFixture[str]) -> None:
    OFUL(2).cite()
    said = capsys.readouterr().out
    assert said.startswith("@software{torchonline,")
    assert said.count("@") == 2
    assert "abbasi2011improved" in said
    torchonline.cite()
    assert capsys.readouterr().out.count("@") == 1


def test_parts_are_cited() -> None:
    """The estimator of a policy, the mechanism of noise, the learners of an optimizer, the policy of a head; each paper once."""
    assert citations.papers(LocalGLB(2)) == ["zhang2025generalized", "faury2022jointly"]
    private = DPTOFW(2, radius_bound=1.0, horizon=10, epsilon=1.0, delta=0.01)
    assert citations.papers(private) == ["han2022private", "dvijotham2024efficient"]
    weight = torch.nn.Parameter(torch.zeros(2))
    assert citations.papers(ParameterFree([weight])) == ["mhammedi2020lipschitz"]
    head = torchonline.models.BanditHead(torch.nn.Identity(), OFUL(2))
    assert citations.papers(head) == ["riquelme2018deep", "abbasi2011improved"]
