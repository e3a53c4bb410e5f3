"""Learners as files that go on choosing and learning where torchonline is not installed.

Each door is checked against the eager module before it returns; none changes the module it is given.

- :func:`to_torchscript`: the whole module, with all its methods, as a TorchScript file for Python or C++.
- :func:`to_program`: one learn-then-choose round as a ``torch.export`` program; :func:`compile_program` makes it machine
  code.
- :func:`to_onnx`: the scores alone, with the state as explicit inputs. ONNX has no state, so the learning stays outside.

A *module* is a policy, or an encoder with a policy on it such as :class:`torchonline.models.BanditHead`.
"""

import copy
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.bandits.policies import Policy
from torchonline.learner import Learner

# How far an exported module may be from the eager one after the rounds of the check, relative to the scale of what is
# compared: all in double precision, or with a part in a lower one.
DOUBLE, LOWER = 1e-8, 1e-2
ROUNDS_CHECKED = 12


class Round(nn.Module):
    """One round of a policy in one call: learn from the last decision, then choose.

    Args:
        policy: a policy whose learner has batch shape ``*B``.

    Shape:
        - x: features of an arm chosen earlier, ``(*B, d)``; reward: what it paid, ``(*B)``; learn: ``(*B)``, bool. Where
          ``learn`` is False nothing is learnt, and no buffer of that learner changes, whatever x and reward hold.
        - arms: ``(*B, N, K, d)``, N decisions among K arms; mask: ``(*B, N, K)``, bool, True where an arm is available.
        - Output: the choices, ``(*B, N)``.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, x: Tensor, reward: Tensor, learn: Tensor, arms: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad(), _only_where(learn, self.policy.estimator):
            self.policy.step(x, reward)
        return self.policy.select(arms, mask)


class HeadRound(nn.Module):
    """One round of an encoder with a policy on it: :class:`Round` with raw inputs in place of features.

    Args:
        head: has ``select(inputs, mask)``, ``step(inputs, action, reward)`` and ``policy``.

    Shape:
        - past: the inputs of an earlier decision, as ``select`` takes them; action: the arm that was chosen, ``(*B)``;
          reward and learn: ``(*B)``.
        - inputs: those of N decisions, ``(*B, N, ...)``; mask: ``(*B, N, K)``.
        - Output: the choices, ``(*B, N)``.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head: Any = head

    def forward(
        self, past: Tensor, action: Tensor, reward: Tensor, learn: Tensor, inputs: Tensor, mask: Tensor
    ) -> Tensor:
        with torch.no_grad(), _only_where(learn, self.head.policy.estimator):
            self.head.step(past, action, reward)
        return self.head.select(inputs, mask)


@contextmanager
def _only_where(learn: Tensor, learner: Learner) -> Iterator[None]:
    """Put back what happens inside to each learner's state where ``learn`` is False."""
    state = [(buffer, buffer.clone()) for buffer in learner.state().values()]
    yield
    for buffer, before in state:
        buffer.copy_(torch.where(learn.reshape(learn.shape + (1,) * (buffer.dim() - learn.dim())), buffer, before))


def to_torchscript(
    module: nn.Module, path: str | Path | None = None, *, example: Tensor | None = None
) -> torch.jit.ScriptModule:
    """Compile a policy or head, with the state it has now, to TorchScript; verify it; write it to ``path``.

    The file has ``forward`` (scores), ``select`` and ``step`` and needs nothing but torch (or libtorch) to load. It
    checks no arguments.

    Args:
        module: a policy, or an encoder with a policy on it.
        path: where to write the file, ``.pt`` by custom; nothing is written if None.
        example: the inputs of a decision as ``select`` takes them. Needed when ``module`` is no policy.

    Returns:
        The scripted module, independent of ``module``.

    Raises:
        RuntimeError: the compiled module does not do what ``module`` does; nothing is written.

    Example:
        >>> policy = OFUL(2)
        >>> scripted = to_torchscript(policy)
        >>> scripted.step(torch.tensor([0.0, 1.0]), torch.tensor(1.0))
        >>> scripted.select(torch.eye(2)), policy.estimator.rounds
        (tensor(0), tensor(0))
    """
    script = _script_on_record(module, example)
    with warnings.catch_warnings():
        # The format is asked for; torch 2.13 warns that it is on its way out.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        subject = _copy(module)
        for part in subject.modules():
            # A LightningModule, as an encoder may be, raises on some properties until it hears of scripting.
            if hasattr(type(part), "_jit_is_scripting"):
                part.__dict__["_jit_is_scripting"] = True
        scripted = torch.jit.script(subject)
        file = io.BytesIO()
        torch.jit.save(scripted, file)
        file.seek(0)
        loaded = torch.jit.load(file)
    eager = _copy(module)
    for decision in script.decisions():
        choice = _seeded(eager.select, decision.inputs, decision.mask)
        _agree("a choice", choice, _seeded(loaded.select, decision.inputs, decision.mask))
        past = script.past(decision, choice)
        eager.step(*past, decision.reward)
        loaded.step(*past, decision.reward)
    _agree_on_state(eager, dict(loaded.named_buffers()), script.tolerance)
    _write(path, file)
    return scripted


def to_program(
    module: nn.Module, path: str | Path | None = None, *, example: Tensor | None = None
) -> torch.export.ExportedProgram:
    """Export one learn-then-choose round, with the state it starts from, as a ``torch.export`` program; verify; write.

    The program is :class:`Round` for a policy and :class:`HeadRound` for an encoder with a policy on it: one call learns
    from an earlier decision and makes N new ones. N and K may vary from call to call. Because a program's state cannot
    be shared between programs, choosing and learning are one call; ``learn=False`` chooses only, and one throw-away arm
    learns only. It checks no arguments, and takes them in the dtype of the state (of ``example``, for a head).
    ``torch.export.load(path).module()`` runs it without torchonline; :func:`compile_program` compiles it.

    Args:
        module: a policy, or an encoder with a policy on it.
        path: where to write the file, which must end in ``.pt2``; nothing is written if None.
        example: the inputs of a decision as ``select`` takes them. Needed when ``module`` is no policy.

    Raises:
        ValueError: ``path`` does not end in ``.pt2``.
        RuntimeError: the program does not do what ``module`` does; nothing is written.

    Example:
        >>> program = to_program(OFUL(2)).module()
        >>> x, reward, learn = torch.zeros(2).double(), torch.tensor(0.0).double(), torch.tensor(False)
        >>> arms, mask = torch.eye(2).double().expand(3, 2, 2), torch.ones(3, 2, dtype=torch.bool)
        >>> program(x, reward, learn, arms, mask)
        tensor([0, 0, 0])
    """
    if path is not None and Path(path).suffix != ".pt2":
        raise ValueError(f"path: expected a file name that ends in .pt2, got {str(path)!r}")
    script = _script_on_record(module, example)
    subject = script.round(_copy(module))
    # Without gradients from the start: switches of gradient mode inside a graph are lost on the way to a file.
    with torch.no_grad():
        program = torch.export.export(subject, script.round_arguments(), dynamic_shapes=script.dynamic_shapes())
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    eager = script.round(_copy(module))
    past = script.no_past()
    for number, decision in enumerate(script.decisions()):
        learn = torch.full(script.batch, number % 3 > 0, device=script.device)
        before = {name: buffer.clone() for name, buffer in loaded.named_buffers()}
        arguments = (*past, decision.reward, learn, decision.inputs, decision.mask)
        choice = _seeded(eager, *arguments)
        _agree("a choice", choice, _seeded(loaded, *arguments))
        if not bool(learn.any()) and not all(torch.equal(before[name], b) for name, b in loaded.named_buffers()):
            raise RuntimeError("export: the program learnt in a round with learn=False")
        past = script.past(decision, choice)
    _agree_on_state(eager, dict(loaded.named_buffers()), script.tolerance)
    _write(path, file)
    return program


def compile_program(program: torch.export.ExportedProgram, path: str | Path) -> Any:
    """Compile a program to machine code with AOTInductor: the fastest way to play small rounds one by one.

    Where a round is nothing but calls, at d of some tens, this makes it a few times faster than eager mode; where it is
    matrix products it gains nothing. Needs torch 2.6 or later and a C++ compiler, and half a minute.

    Args:
        program: what :func:`to_program` returned.
        path: where to write the package, which must end in ``.pt2``. ``torch._inductor.aoti_load_package`` loads it, in
            Python without torchonline or in C++, on the kind of machine it was compiled on.

    Returns:
        The loaded package: called like the program's ``module()``, with a state of its own.

    Example, with arguments as for the program::

        fast = compile_program(to_program(policy), "round.pt2")
        choices = fast(x, reward, learn, arms, mask)
    """
    with _torch_warns_about_itself():
        written = torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        return torch._inductor.aoti_load_package(written)


def to_onnx(policy: Policy, path: str | Path) -> list[str]:
    """Write the scores of a policy as an ONNX graph whose inputs are the arms and the state.

    ONNX graphs hold no state, and an update frozen into one would be silently wrong, so the learning stays with the
    caller: feed the current buffers with each call. torch's exporter keeps Python numbers in single precision, so scores
    agree to seven digits. Needs the ``onnx`` extra.

    Args:
        policy: one whose scores are not random.
        path: where to write the file, ``.onnx`` by custom.

    Returns:
        The names of the graph's inputs: ``"arms"``, shape ``(*B, N, K, d)`` with N and K free, then the names of buffers
        in ``policy.state_dict()``. The output, ``"scores"``, has shape ``(*B, N, K)``.

    Raises:
        TypeError: ``policy`` is no policy.
        ValueError: its scores are random.
        RuntimeError: the graph does not compute the policy's scores; nothing is written.

    Example:
        >>> to_onnx(OFUL(2), folder / "scores.onnx")
        ['arms', 'estimator.theta_hat', 'estimator.V_inv', 'estimator.logdet']
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"policy: expected a Policy, got {type(policy).__name__}")
    from onnx.reference import ReferenceEvaluator

    script = _PolicyScript(policy)
    arms = script.round_arguments()[-2]
    with torch.random.fork_rng():
        if not torch.equal(policy(arms), policy(arms)):
            raise ValueError(f"policy: expected one whose scores are not random, got {type(policy).__name__}")
    state = dict(policy.named_buffers())
    graph = torch.export.export(_Scorer(policy, list(state)).eval(), (arms, *state.values())).graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    names = [name for name, node in zip(state, placeholders[1:], strict=True) if node.users]
    with _torch_warns_about_itself():
        program: Any = torch.onnx.export(
            _Scorer(policy, names).eval(),
            (arms, *(state[name] for name in names)),
            input_names=["arms", *names],
            output_names=["scores"],
            dynamic_shapes=(script.dynamic_shapes()[-1], tuple({} for _ in names)),
            dynamo=True,
            verbose=False,
        )
    evaluator = ReferenceEvaluator(program.model_proto)
    for decision in script.decisions():
        inputs = {"arms": decision.inputs, **{name: state[name] for name in names}}
        (scores,) = evaluator.run(None, {name: value.numpy() for name, value in inputs.items()})
        _agree("a score", policy(decision.inputs).detach(), torch.from_numpy(scores), max(script.tolerance, 1e-6))
    program.save(str(path))
    return ["arms", *names]


@contextmanager
def _torch_warns_about_itself() -> Iterator[None]:
    """Keep warnings of torch's compilers about their own code from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class _Scorer(nn.Module):
    """A policy's scores as a function of arms and of some of its buffers; the rest must not matter."""

    def __init__(self, policy: Policy, names: list[str]) -> None:
        super().__init__()
        self._policy = (_copy(policy),)
        self._names = names

    def forward(self, arms: Tensor, *state: Tensor) -> Tensor:
        return torch.func.functional_call(self._policy[0], dict(zip(self._names, state, strict=True)), (arms,))


# What the checks play: decisions of varying size, with all that a round needs.


@dataclass
class _Decision:
    inputs: Tensor
    mask: Tensor
    reward: Tensor


class _PolicyScript:
    """Rounds for a policy: random arms."""

    def __init__(self, policy: Policy) -> None:
        state = policy.estimator.theta_hat
        self.batch, self.dim = policy.estimator.batch_shape, policy.estimator.dim
        self.options: dict[str, Any] = {"dtype": state.dtype, "device": state.device}
        self.device = state.device
        self.tolerance = DOUBLE if state.dtype == torch.float64 else LOWER

    def decisions(self) -> Iterator[_Decision]:
        generator = torch.Generator().manual_seed(0)
        for number in range(ROUNDS_CHECKED):
            sizes = (*self.batch, 1 + number % 3, 2 + number % 4)
            arms = torch.randn(*sizes, self.dim, generator=generator, dtype=torch.float64).to(**self.options)
            mask = torch.rand(sizes, generator=generator) < 0.8
            mask[..., 0] = True
            reward = torch.randn(self.batch, generator=generator, dtype=torch.float64).to(**self.options)
            yield _Decision(arms, mask.to(self.device), reward)

    def past(self, decision: _Decision, choice: Tensor) -> tuple[Tensor, ...]:
        """What ``step`` takes besides the reward, for the first of the decisions."""
        first = len(self.batch)
        arms, index = decision.inputs.select(first, 0), choice.select(first, 0)
        return (arms.gather(first, index[..., None, None].expand(*self.batch, 1, self.dim)).squeeze(first),)

    def no_past(self) -> tuple[Tensor, ...]:
        return (torch.zeros(*self.batch, self.dim, **self.options),)

    def round(self, policy: Any) -> nn.Module:
        return Round(policy)

    def round_arguments(self) -> tuple[Tensor, ...]:
        decision = next(decision for decision in self.decisions() if decision.mask.size(-2) > 1)
        learn = torch.ones(self.batch, dtype=torch.bool, device=self.device)
        return (*self.no_past(), decision.reward, learn, decision.inputs, decision.mask)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        free = {
            len(self.batch): torch.export.Dim("decisions", min=1),
            len(self.batch) + 1: torch.export.Dim("arms", min=1),
        }
        return ({}, {}, {}, free, free)


class _HeadScript(_PolicyScript):
    """Rounds for an encoder with a policy on it: variations of an example decision."""

    def __init__(self, head: Any, example: Tensor) -> None:
        super().__init__(head.policy)
        if any(tensor.dtype != torch.float64 for tensor in (example, *head.encoder.parameters())):
            self.tolerance = LOWER
        self.has_actions = head.actions is not None
        dims = len(self.batch) + (not self.has_actions) + head.feature_dims
        if example.dim() < dims:
            raise ValueError(f"example: expected a decision's inputs with {dims} dimensions, got {example.dim()}")
        while example.dim() > dims:  # many decisions: take the first
            example = example.select(len(self.batch), 0)
        self.example = example
        self.actions = len(head.actions) if self.has_actions else 0

    def decisions(self) -> Iterator[_Decision]:
        first = len(self.batch)
        generator = torch.Generator().manual_seed(1)
        for decision in super().decisions():
            mask, count = decision.mask, decision.mask.size(-2)
            inputs = self.example
            if self.has_actions:
                mask = mask[..., :1].expand(*mask.shape[:-1], self.actions)
            else:
                inputs = inputs.index_select(
                    first, torch.arange(mask.size(-1), device=self.device) % inputs.size(first)
                )
            inputs = inputs.unsqueeze(first).repeat_interleave(count, first)
            if inputs.is_floating_point():
                noise = torch.randn(inputs.shape, generator=generator, dtype=torch.float64).to(inputs)
                inputs = inputs + noise * self.example.abs().mean()
            yield _Decision(inputs, mask, decision.reward)

    def past(self, decision: _Decision, choice: Tensor) -> tuple[Tensor, ...]:
        first = len(self.batch)
        return decision.inputs.select(first, 0), choice.select(first, 0)

    def no_past(self) -> tuple[Tensor, ...]:
        return torch.zeros_like(self.example), torch.zeros(self.batch, dtype=torch.int64, device=self.device)

    def round(self, head: Any) -> nn.Module:
        return HeadRound(head)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        first = len(self.batch)
        decisions, arms = (torch.export.Dim(name, min=1) for name in ("decisions", "arms"))
        if self.has_actions:
            return ({}, {}, {}, {}, {first: decisions}, {first: decisions})
        past = {first: torch.export.Dim("past_arms", min=1)}
        return (past, {}, {}, {}, {first: decisions, first + 1: arms}, {first: decisions, first + 1: arms})


def _script_on_record(module: nn.Module, example: Tensor | None) -> _PolicyScript:
    if isinstance(module, Policy):
        return _PolicyScript(module)
    if not isinstance(getattr(module, "policy", None), Policy):
        raise TypeError(f"module: expected a Policy or a head with a policy on it, got {type(module).__name__}")
    if example is None:
        raise ValueError("example: expected the inputs of a decision, which a head needs; got None")
    return _HeadScript(module, example)


def _copy(module: nn.Module) -> Any:
    """An independent copy in evaluation mode."""
    return copy.deepcopy(module).eval()


def _seeded(function: Any, *arguments: Tensor) -> Tensor:
    """Call with the same random draws each time, and leave the global ones alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function(*arguments)


def _agree(what: str, ours: Tensor, theirs: Tensor, tolerance: float = 0.0) -> None:
    scale = 1.0 + ours.abs().max().item()
    if ours.shape != theirs.shape or not bool(((ours - theirs).abs() <= tolerance * scale).all()):
        raise RuntimeError(f"export: {what} differs between the eager and the exported module: {ours} and {theirs}")


def _agree_on_state(eager: nn.Module, theirs: dict[str, Tensor], tolerance: float) -> None:
    for name, buffer in eager.named_buffers():
        if name not in theirs:
            raise RuntimeError(f"export: the exported module has no buffer {name}")
        _agree(f"buffer {name}", buffer, theirs[name], tolerance if buffer.is_floating_point() else 0.0)


def _write(path: str | Path | None, file: io.BytesIO) -> None:
    """Write the whole file or none of it."""
    if path is None:
        return
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(file.getvalue())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
