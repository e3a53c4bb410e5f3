"""Draws of one block beside those of all others."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torchonline import OFUL, EpsilonGreedy, RidgeRegression, SquareCB, ThompsonSampling
from torchonline.core.generators import OwnDraws, generators_left_alone
from torchonline.export import to_onnx, to_program, to_torchscript


def draws() -> list[torch.Tensor]:
    x = torch.ones(3, dtype=torch.float64)
    found = [torch.rand(2), torch.randn_like(x), torch.rand_like(x), torch.normal(x, 1.0), torch.bernoulli(x / 2)]
    found += [torch.multinomial(x, 2), torch.randint(5, (3,)), torch.randperm(4), torch.poisson(x)]
    return [*found, torch.nn.functional.dropout(x, 0.5, True), torch.empty(3).exponential_()]


def test_a_block_draws_from_a_generator_of_its_own() -> None:
    before, found = torch.get_rng_state(), []
    for seed in (0, 0, 1):
        with OwnDraws(seed) as own:
            found.append(draws())
        assert own.count == 11
    assert all(map(torch.equal, found[0], found[1]))
    assert not all(map(torch.equal, found[0], found[2]))
    assert torch.equal(before, torch.get_rng_state())


class Branches(torch.nn.Module):
    """Draws in branches of a program, and where gradients are switched off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            drawn = torch.rand_like(x)
        return drawn + torch.cond(x.sum() > 0.0, torch.rand_like, torch.randn_like, (x,))


def test_branches_of_programs_draw_from_the_generator_of_the_block() -> None:
    program = torch.export.export(Branches(), (torch.ones(3),)).module()
    before, found = torch.get_rng_state(), []
    for sign in (1.0, 1.0, -1.0, -1.0):
        with OwnDraws():
            found.append(program(sign * torch.ones(3)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2], found[3])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(before, torch.get_rng_state())


def test_other_threads_draw_from_the_global_generator() -> None:
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    found: list[torch.Tensor] = []
    with OwnDraws(5):
        thread = threading.Thread(target=lambda: found.append(torch.rand(3)))
        thread.start()
        thread.join()
    assert torch.equal(wanted, found[0])


@pytest.mark.parametrize("policy", [EpsilonGreedy, SquareCB, ThompsonSampling])
@pytest.mark.parametrize("export", [to_torchscript, to_program])
def test_an_export_does_not_touch_the_draws_of_decisions(
    policy: Any, export: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a file is made and compared, decisions of other threads repeat no draw."""

    def touched(*_: Any, **__: Any) -> None:
        raise AssertionError("the global generator")

    before = torch.get_rng_state()
    for name in ("manual_seed", "seed", "set_rng_state"):
        monkeypatch.setattr(torch, name, touched)
    monkeypatch.setattr(torch.random, "fork_rng", touched)
    export(policy(RidgeRegression(2)))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", ["script", "program", "graph"])
def test_a_thread_beside_exports_draws_as_without_them(kind: str, tmp_path: Path) -> None:
    """What torch's own compilers do to the generator counts too."""
    exports: dict[str, Callable[[], Any]] = {
        "script": lambda: to_torchscript(SquareCB(2)),
        "program": lambda: to_program(SquareCB(2)),
        "graph": lambda: to_onnx(OFUL(2), tmp_path / "graph.onnx"),
    }
    drawn: list[float] = []
    done = threading.Event()

    def draw() -> None:
        while not done.is_set():
            drawn.append(float(torch.rand(())))

    torch.manual_seed(0)
    thread = threading.Thread(target=draw)
    thread.start()
    try:
        exports[kind]()
    finally:
        done.set()
        thread.join()
    torch.manual_seed(0)
    assert drawn == [float(torch.rand(())) for _ in drawn]


def test_other_threads_set_the_generator_while_one_compiles() -> None:
    before = torch.get_rng_state()
    torch.rand(1)
    here = torch.get_rng_state()
    assert not torch.equal(before, here)
    with generators_left_alone():
        torch.random.set_rng_state(before)
        assert torch.equal(here, torch.get_rng_state())
        thread = threading.Thread(target=lambda: torch.random.set_rng_state(before))
        thread.start()
        thread.join()
        assert torch.equal(before, torch.get_rng_state())
    torch.random.set_rng_state(here)
    assert torch.equal(here, torch.get_rng_state())
