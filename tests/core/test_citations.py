"""Every public learner is cited, by the papers that its docstring names."""

import inspect
import re
import sys
import types
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
import torch

import torchonline
import torchonline.models
from tests import convex_learners, learners, private_learners
from torchonline import (
    DPTOFW,
    OFUL,
    EpsilonGreedy,
    LocalGLB,
    ParameterFree,
    RadiusSelector,
    RidgeRegression,
    SharedRadiusSelector,
    baselines,
)
from torchonline.core import citations
from torchonline.core.learner import Learner
from torchonline.policies.rules import Policy

CASES = {case.cls: case for case in (*private_learners.CASES, *convex_learners.CASES, *learners.CASES)}
PUBLIC = [
    getattr(package, name)
    for package in (torchonline, baselines, torchonline.models)
    for name in package.__all__
    if hasattr(getattr(package, name), "cite") and not isinstance(getattr(package, name), types.ModuleType)
]
# Estimators and wrappers that come from no paper.
NO_PAPER = ("AdaptiveRidgeRegression", "CatalogueArms", "DisjointArms", "FixedArms", "ScaledPolicy")


def fields(entry: str) -> dict[str, str]:
    """Return the fields of a BibTeX entry."""
    return dict(re.findall(r"^  (\w+) = \{(.+)\},$", entry, re.MULTILINE))


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
    """By its papers or the papers of its parts, or NO_PAPER names it."""
    for cls in PUBLIC:
        is_known = any(base.__name__ in (*citations.keys_by_class(), *NO_PAPER) for base in cls.__mro__)
        assert is_known or cls is ParameterFree or issubclass(cls, Policy), cls
        if cls in CASES:
            found = citations.papers(CASES[cls].build())
            assert set(found) <= set(citations.entries()), cls
            has_paper = "Reference:" in (cls.__doc__ or "") and "Of this library." not in cls.__doc__
            assert found or not has_paper, cls


def test_papers_of_a_class_are_those_of_its_docstring() -> None:
    """The docstring has the names of the authors, and the title or the year."""
    for name, keys in citations.keys_by_class().items():
        text = docstrings(class_named(name))
        # "That of DPTOFW", "the paper of OONS": the first learner of a paper names it for the others.
        if re.search(r"(that|paper) of :class:", text) and name not in ("DPTOFW", "OONS"):
            continue
        for paper in (fields(citations.entries()[key]) for key in keys):
            surnames = [plain(author.partition(",")[0]) for author in paper["author"].split(" and ")]
            is_short = f"{surnames[0]} et al." in text
            assert is_short or all(surname.split()[-1] in text for surname in surnames), (name, surnames)
            assert plain(paper["title"]).partition(":")[0] in text or paper["year"] in text, (name, paper["title"])


def test_the_file_holds_entries_that_classes_use_and_nothing_else() -> None:
    text = (Path(citations.__file__).parent / "papers.bib").read_text()
    keys = re.findall(r"@\w+\{(\w+),", text)
    assert keys == list(citations.entries())
    assert len(keys) == len(set(keys)) == text.count("@")
    for key, entry in citations.entries().items():
        assert fields(entry)["learners"], key


def test_entries_are_bibtex() -> None:
    for key, entry in citations.entries().items():
        text, paper = citations.LEARNERS.sub("", entry), fields(entry)
        assert text.count("{") == text.count("}"), key
        assert "learners" not in text, key
        assert key.startswith(plain(paper["author"]).partition(",")[0].partition("-")[0].split()[-1]), key
        assert paper["year"] in key, key
        assert all("," in author for author in paper["author"].split(" and ")), key
        assert re.fullmatch(r"@(misc|article|inproceedings)\{\w+,\n(  \w+ = \{.+\},\n)+\}", text), key


def test_cite_prints(capsys: pytest.CaptureFixture[str]) -> None:
    OFUL(2).cite()
    said = capsys.readouterr().out
    assert said.startswith("@software{torchonline,")
    assert said.count("@") == 2
    assert "abbasi2011improved" in said
    torchonline.cite(OFUL(2))
    assert capsys.readouterr().out == said
    torchonline.cite()
    assert capsys.readouterr().out.count("@") == 1


@pytest.mark.parametrize(
    ("of", "got"),
    [
        (OFUL, r"the class OFUL; construct one, because its parts are cited too$"),
        (3, "int$"),
        ([OFUL(2)], "list$"),
        (torch.nn.Linear(2, 1), "Linear$"),
        (torch.nn.Sequential(torch.nn.Tanh()), "Sequential$"),
        (
            torch.jit.script(torch.nn.Tanh()),
            "TorchScript, whose papers are not known; cite the module it was made from$",
        ),
    ],
)
def test_what_is_no_learner_is_refused(of: object, got: str) -> None:
    with pytest.raises(TypeError, match=rf"^of: expected a learner, policy, head or optimizer, or None, got {got}"):
        torchonline.cite(of)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        OFUL.cite()  # type: ignore[call-arg]


def test_a_users_class_has_the_papers_of_ours_by_class_and_not_by_name() -> None:
    mine = type("Mine", (OFUL,), {"__module__": __name__})
    assert citations.papers(mine(2)) == citations.papers(OFUL(2)) == ["abbasi2011improved"]
    tree = type("Tree", (torch.nn.Module,), {"__module__": __name__})
    assert citations.papers(tree()) == []
    assert citations.papers(torch.nn.Sequential(tree(), OFUL(2))) == ["abbasi2011improved"]


@pytest.mark.parametrize(
    ("number", "said", "is_release"),
    [
        ("1.2.3", "1.2.3", True),
        ("0.2.0rc1", "0.2.0rc1", True),
        ("0.1.1.dev9+gabc", "0.1.1", False),
        ("0+unknown", "", False),
    ],
)
def test_the_entry_of_the_library(number: str, said: str, is_release: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Message()
    named["Project-URL"] = "Homepage, https://example.org/torchonline"
    monkeypatch.setattr(metadata, "version", lambda _: number)
    monkeypatch.setattr(metadata, "metadata", lambda _: named)
    text = citations.bibtex()
    assert ("  version = {" + said + "}," in text) == bool(said)
    assert ("  note = {development version}," in text) == (not is_release)
    assert "  url = {https://example.org/torchonline}," in text
    # The changelog begins with what is not released yet.
    dated = re.search(r"^## \S+ - (\d{4})-", (Path(__file__).parents[2] / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"  year = {{{dated[1] if dated else citations.YEAR}}}," in text


def test_parts_are_cited() -> None:
    """The estimator of a policy, the mechanism of noise, the learners of an optimizer, the policy of a head; each paper once."""
    assert citations.papers(LocalGLB(2)) == ["zhang2025generalized", "faury2022jointly"]
    assert "kim2026jointly" in citations.papers(LocalGLB(2, corruption=1.0))
    private = DPTOFW(2, radius_bound=1.0, horizon=10, epsilon=1.0, delta=0.01)
    assert citations.papers(private) == ["han2022private", "dvijotham2024efficient"]
    weight = torch.nn.Parameter(torch.zeros(2))
    assert citations.papers(ParameterFree([weight])) == ["mhammedi2020lipschitz"]
    for rule, keys in (("ucb", []), ("exp4", ["neu2015explore"])):
        for master in (
            RadiusSelector(RidgeRegression(2), 3, rule=rule),
            SharedRadiusSelector(RidgeRegression(2), rule=rule),
        ):
            assert citations.papers(master) == [*keys, "abbasi2011improved"]
    assert citations.papers(EpsilonGreedy(2)) == ["auer2002finite", "abbasi2011improved"]
    head = torchonline.models.BanditHead(torch.jit.script(torch.nn.Identity()), OFUL(2))
    assert citations.papers(head) == ["riquelme2018deep", "abbasi2011improved"]
