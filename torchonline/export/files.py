"""Learners as files that decide and learn where torchonline is not installed.

Every function leaves its argument unchanged. All but :func:`compile_program` verify the exported module against the eager one
before they return; that takes a program that was verified, and does not run the compiled code. Files protect their state:
:mod:`torchonline.export.guard` and docs/files.md say from what. A file of a private learner holds its
:meth:`~torchonline.privacy.learners.base.PrivateLearner.released` values alone: it only decides.
"""

import copy
import hashlib
import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import instance_of
from torchonline.core.draws import OwnDraws, generators_left_alone
from torchonline.core.files import has_seal, replace_file, sealed
from torchonline.core.learner import Learner
from torchonline.core.messages import install_extra
from torchonline.export.compiled import CompiledProgram, place_in_cache
from torchonline.export.copies import uncompiled, uncompiled_copy
from torchonline.export.programs import no_blocks
from torchonline.export.scripts import as_file
from torchonline.export.verification import PolicyTrial, agree, agree_on_state, check_kind, trial_of
from torchonline.policies.arm_ids import WithArmIds
from torchonline.policies.rules import Rule
from torchonline.privacy.composition import private_learners
from torchonline.privacy.learners.base import PrivateLearner


def to_torchscript(
    module: nn.Module, path: str | Path | None = None, *, example: Tensor | None = None
) -> torch.jit.ScriptModule:
    """Compile a copy of a module, with its present state, to TorchScript.

    The result is verified, then written to ``path``. The file has ``forward`` (scores), ``select``, ``step`` and ``learn``
    (not for :class:`torchonline.FixedArms`), or ``predict``, ``queries`` and ``step``, and needs nothing but torch (or libtorch)
    to load. To put a learner's newer state into it: ``scripted.load_state_dict(module.state_dict(), strict=False)``, not strict,
    because the file's state has constant tables.

    The file raises nothing for the values of its arguments, and checks no shapes. ``step`` and ``learn`` return which rounds were
    learnt: a bool tensor, ``(*B)`` or ``(*B, n)``. A round that the eager ``step`` would refuse for its values changes nothing,
    and neither does one after which the state would not be finite. ``select`` returns -1 for a decision without an available arm,
    or with features that are not finite. See docs/files.md.

    Args:
        module: a policy, arms with a model each (:class:`torchonline.DisjointArms`), arms that stay
            (:class:`torchonline.FixedArms`), an encoder with a policy on it (:class:`torchonline.models.BanditHead`), a convex
            learner or a private learner.
        path: where to write the file, ``.pt`` by custom; nothing is written if None.
        example: the inputs of a decision as ``select`` takes them. Needed for an encoder with a policy on it.

    Raises:
        ValueError: ``module`` has a learner that runs in Python only.
        RuntimeError: the compiled module differs from ``module``; nothing is written.

    Example:
        >>> policy = OFUL(2)
        >>> scripted = to_torchscript(policy)
        >>> arms, k, reward = torch.eye(2), torch.tensor(1), torch.tensor(1.0)
        >>> scripted.step(arms, k, reward), scripted.step(arms, k, torch.nan * reward)
        (tensor(True), tensor(False))
        >>> scripted.select(arms), scripted.estimator.rounds, policy.estimator.rounds
        (tensor(0), tensor(1), tensor(0))
    """
    module = uncompiled(module)
    if isinstance(module, PrivateLearner):
        public = _released(module, example)
        scripted, file = _as_script(public)
        _agree_on_released(public, torch.jit.load(file))
    else:
        check_kind(module)
        _refuse_python(module, "module")
        module = _with_ids(_copy(module))  # threads may let the original learn meanwhile
        trial = trial_of(module, example)
        scripted, file = _as_script(as_file(_copy(module)))
        loaded, eager = torch.jit.load(file), _copy(module)
        trial.compare(eager, loaded)
        agree_on_state(eager, dict(loaded.named_buffers()), trial.tolerance)
    _write(path, file)
    return scripted


def to_program(
    module: nn.Module,
    path: str | Path | None = None,
    *,
    example: Tensor | None = None,
    blocks: bool = False,
    noise_scale: bool = False,
) -> torch.export.ExportedProgram:
    """Export a learn-then-decide round as a ``torch.export`` program.

    The program starts from the present state. It is verified, then written to ``path``. Learning and deciding are one call,
    because programs cannot share a state: ``Round``, ``FixedRound`` or ``ConvexRound`` of ``torchonline.export.programs``.
    ``learn=False`` only decides; one throw-away arm only learns. The numbers N of decisions and K of arms may vary from call to
    call. The program takes arguments in the dtype of the state (of ``example``, for a head).

    The program raises nothing for the values of its arguments. It returns ``learnt``, bool, after its decisions: where it is
    False, no buffer has changed. That is so where ``learn`` is False, for a round that the eager ``step`` would refuse for its
    values, and for one after which the state would not be finite. A choice is -1 where there is none to make: no arm is
    available, or features are not finite. See docs/files.md.

    With ``blocks=True``, a call learns n earlier rounds at once, as ``learn`` with ``block_size=n`` does, and then decides:
    ``BlockRound``. The number n may vary too, from 1 to ``restart_every``. A call costs n rows for each
    model, whether they are learnt or not. :class:`~torchonline.LocalGLMRegression` makes 12 steps of Newton's method in each
    call. A minimum that they have not reached costs radius, but not the guarantee.

    Args:
        module: as in :func:`to_torchscript`. The program of a private learner is its decision, or the scores of N contexts.
        path: where to write the file, which must end in ``.pt2``; nothing is written if None.
            ``torch.export.load(path).module()`` runs it without torchonline; :func:`compile_program` compiles it.
        example: as in :func:`to_torchscript`.
        blocks: whether a call learns a block of rounds, ``(*B, n)``, in the place of one round.
        noise_scale: whether the last argument of a call is the noise scale of each round, shaped like ``reward``. Without it,
            each round counts with the learner's own.

    Raises:
        ValueError: ``module`` has a learner that torch.export cannot follow; or ``blocks`` is True and ``module`` learns rounds
            in order, because its ``has_blocks`` is False, its scaler has not frozen, or it is a head with a scaler; or
            ``noise_scale`` is True and its rounds have none.
        RuntimeError: the program differs from ``module``; nothing is written.

    Example:
        >>> program = to_program(OFUL(2)).module()
        >>> arms, mask = torch.eye(2).double().expand(3, 2, 2), torch.ones(3, 2, dtype=torch.bool)
        >>> action, reward, learn = torch.tensor(0), torch.tensor(0.0).double(), torch.tensor(False)
        >>> program(arms[0], action, reward, learn, arms, mask)
        (tensor([0, 0, 0]), tensor(False))
        >>> program = to_program(OFUL(2), blocks=True).module()
        >>> past, action = torch.eye(2).double().expand(100, 2, 2), torch.arange(100) % 2
        >>> choices, learnt = program(past, action, action.double(), torch.ones(100).bool(), arms, mask)
        >>> choices, int(learnt.sum())
        (tensor([1, 1, 1]), 100)
    """
    instance_of("blocks", blocks, bool, "True or False")
    instance_of("noise_scale", noise_scale, bool, "True or False")
    if path is not None:
        _check_suffix(path)
    module = uncompiled(module)
    if isinstance(module, PrivateLearner):
        _refuse_blocks(module, blocks)
        if noise_scale:
            got = type(module).__name__
            raise ValueError(f"noise_scale: expected False, got True, but the program of a {got} does not learn")
        public: Any = _released(module, example)
        inputs = public.example()
        shapes = tuple({x.dim() - 2: torch.export.Dim("decisions", min=1)} for x in inputs)
        program, file = _as_program(public, inputs, shapes)
        _agree_on_released(public, _loaded(file))
        _write(path, file)
        return program
    check_kind(module)
    _refuse_python(module, "module", is_program=True)
    module = _with_ids(_copy(module))
    trial = trial_of(module, example, blocks, noise_scale)
    _refuse_blocks(module, blocks)
    program, file = _as_program(trial.round(_copy(module)), trial.round_arguments(), trial.dynamic_shapes())
    loaded, eager = _loaded(file), trial.round(_copy(module))
    # A buffer that no round reads or writes may be left out of the program.
    unused = {name: buffer.clone() for name, buffer in eager.named_buffers()}
    trial.compare_rounds(eager, loaded)
    agree_on_state(eager, unused | dict(loaded.named_buffers()), trial.tolerance)
    _write(path, file)
    return program


def compile_program(program: torch.export.ExportedProgram, path: str | Path) -> CompiledProgram:
    """Compile a program to machine code with AOTInductor.

    The package is the fastest way to play small rounds one by one. Up to d of some tens it makes a round one and a half to three
    times as fast as eager mode (docs/speed.md); where a round is matrix products it gains nothing. Needs a C++
    compiler.

    Compiling takes half a minute, and minutes on a busy machine. The package is kept in torch's cache of compiled code, in the
    folder ``TORCHINDUCTOR_CACHE_DIR``: to compile the same program in the same state once more takes a second. A program of
    blocks takes a minute or two.

    Args:
        program: what :func:`to_program` returned.
        path: where to write the package, which must end in ``.pt2``. ``torch._inductor.aoti_load_package`` loads it, in Python
            without torchonline or in C++, on the kind of machine it was compiled on.

    Returns:
        The loaded package, with a state of its own: ``choices, learnt = compiled(past, action, reward, learn, arms, mask)``.
    """
    _check_suffix(path)
    # Folded, a buffer of one number, which evolves, would stay at its first value (torch 2.13).
    options = {"joint_graph_constant_folding": False}
    with _torch_warns_about_itself(), generators_left_alone():
        cached = place_in_cache(program, options)
        if not cached.exists():
            cached.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cached.parent) as folder:
                package = os.path.join(folder, cached.name)
                torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=options)
                os.replace(package, cached)
        _write(path, io.BytesIO(cached.read_bytes()))
        return CompiledProgram(torch._inductor.aoti_load_package(str(path)), program.call_spec.out_spec)


def to_onnx(policy: Rule, path: str | Path, *, decisions: bool = True) -> list[str]:
    """Write a policy's scores as an ONNX graph, a function of arms and state.

    Feed the current buffers with each call. torch's exporter keeps Python numbers in single precision, so scores agree to seven
    digits. Needs the ``onnx`` extra.

    Args:
        policy: one whose scores are not random.
        path: where to write the file, ``.onnx`` by custom.
        decisions: whether the graph takes the arms of N decisions; False for those of one. A graph has one number of dimensions.

    Returns:
        The names of the graph's inputs: ``"arms"``, shape ``(*B, N, K, d)`` with N and K free, or ``(*B, K, d)`` without
        ``decisions``; then the names of buffers in ``policy.state_dict()``. The output, ``"scores"``, has shape ``(*B, N, K)`` or
        ``(*B, K)``.

    Raises:
        ValueError: its scores are random, or it has a learner that runs in Python only.
        ImportError: onnx or onnxscript is not installed.
        RuntimeError: the graph does not compute the policy's scores; nothing is written.

    Example:
        >>> to_onnx(OFUL(2), folder / "scores.onnx")
        ['arms', 'estimator.theta_hat', 'estimator.V_inv', 'estimator.logdet']
    """
    instance_of("policy", policy, Rule, "a rule of choice, such as UCB")
    instance_of("decisions", decisions, bool, "True or False")
    _refuse_python(policy, "policy")
    try:
        import onnxscript  # noqa: F401  # by which torch writes the graph
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        raise ImportError(
            f"to_onnx: expected onnx and onnxscript, got no {error.name}; {install_extra('onnx')}"
        ) from error

    trial, first = PolicyTrial(policy), policy.estimator.batch_dims
    arms, shape = trial.round_arguments()[-2], trial.dynamic_shapes()[-1]
    if not decisions:
        arms, shape = arms.select(first, 0), {first: shape[first + 1]}
    with OwnDraws() as draws:
        policy(arms)
    if draws.count:
        raise ValueError(f"policy: expected one whose scores are not random, got {type(policy).__name__}")
    state = dict(policy.named_buffers())
    with generators_left_alone():
        graph = torch.export.export(_Scorer(policy, list(state)).eval(), (arms, *state.values()), strict=False).graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    names = [name for name, node in zip(state, placeholders[1:], strict=True) if node.users]
    with _torch_warns_about_itself(), generators_left_alone():
        program: Any = torch.onnx.export(
            _Scorer(policy, names).eval(),
            (arms, *(state[name] for name in names)),
            input_names=["arms", *names],
            output_names=["scores"],
            dynamic_shapes=(shape, tuple({} for _ in names)),
            dynamo=True,
            verbose=False,
        )
    evaluator = ReferenceEvaluator(program.model_proto)
    for decision in trial.decisions():
        offered = decision.inputs if decisions else decision.inputs.select(first, 0)
        inputs = {"arms": offered, **{name: state[name] for name in names}}
        (scores,) = evaluator.run(None, {name: value.numpy() for name, value in inputs.items()})
        agree("a score", policy(offered).detach(), torch.from_numpy(scores), max(trial.tolerance, 1e-6))
    with tempfile.TemporaryDirectory() as folder:
        program.save(os.path.join(folder, "policy.onnx"))
        data = Path(folder, "policy.onnx").read_bytes()
    digest = f"{hashlib.sha256(data).hexdigest()}  {Path(path).name}\n"
    _digest_file(path).unlink(missing_ok=True)  # never that of another graph
    replace_file(path, data, _beside(path))
    replace_file(_digest_file(path), digest.encode(), _beside(_digest_file(path)))
    return ["arms", *names]


def released(module: nn.Module) -> Any:
    """Return a copy of a module with released values in place of private learners.

    ``torch.export``, ``torch.jit.trace``, ``torch.save`` and similar functions save all buffers of a module, the secrets of a
    private learner inside among them. Give them this copy. ``torch.jit.script`` refuses a module that contains a private learner.
    A private learner itself becomes its ``released()``.

    Example:
        >>> parent = torch.nn.ModuleDict({"learner": DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)})
        >>> list(released(parent).state_dict())
        ['learner.theta']
    """
    instance_of("module", module, nn.Module, "an nn.Module")
    # deepcopy takes from its memo what replaces the learners.
    memo: dict[int, Any] = {id(learner): learner.released() for learner in private_learners(module).values()}
    return copy.deepcopy(module, memo)


def _loaded(file: io.BytesIO) -> Any:
    """Return the module of a program in a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The given buffer is not writable", UserWarning
        )  # torch 2.11, of its own buffers
        return torch.export.load(file).module()


@contextmanager
def _torch_warns_about_itself() -> Iterator[None]:
    """Keep warnings of torch's compilers about their own code from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class _Scorer(nn.Module):
    """A policy's scores as a function of arms and of the buffers that matter."""

    def __init__(self, policy: Rule, names: list[str]) -> None:
        super().__init__()
        self._policy = (_copy(policy),)
        self._names = names

    def forward(self, arms: Tensor, *state: Tensor) -> Tensor:
        return torch.func.functional_call(self._policy[0], dict(zip(self._names, state, strict=True)), (arms,))


def _released(learner: PrivateLearner, example: Tensor | None) -> nn.Module:
    """Return a private learner's released module, which needs no example of inputs."""
    if example is not None:
        raise ValueError(f"example: expected None for {type(learner).__name__}, whose inputs are known, got one")
    return learner.released().eval()


def _agree_on_released(public: Any, loaded: Any) -> None:
    """Raise unless a file decides as the public module does, and holds no more."""
    inputs = public.example()
    agree("a decision", public(*inputs), loaded(*inputs), 1e-12)
    agree_on_state(public, dict(loaded.named_buffers()), 0.0)
    extra = {name for name, _ in loaded.named_buffers()} - {name for name, _ in public.named_buffers()}
    if extra:
        raise RuntimeError(f"export: expected public buffers only in the file, got {sorted(extra)} besides")


def _as_script(subject: nn.Module) -> tuple[torch.jit.ScriptModule, io.BytesIO]:
    """Return a module as TorchScript, and as a file."""
    with warnings.catch_warnings():
        # The format is asked for; torch 2.13 warns that it is on its way out.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        for part in subject.modules():
            # A LightningModule, as an encoder may be, raises on some properties until it hears of scripting.
            if hasattr(type(part), "_jit_is_scripting"):
                part.__dict__["_jit_is_scripting"] = True
        scripted = torch.jit.script(subject)
        file = io.BytesIO()
        torch.jit.save(scripted, file)
    file.seek(0)
    return scripted, file


def _as_program(
    subject: nn.Module, arguments: tuple[Tensor, ...], shapes: tuple[dict[int, Any], ...]
) -> tuple[torch.export.ExportedProgram, io.BytesIO]:
    """Return a module as a program, and as a file."""
    # Without gradients from the start: switches of gradient mode inside a graph are lost on the way to a file.
    with torch.no_grad(), generators_left_alone():
        program = torch.export.export(subject, arguments, dynamic_shapes=shapes, strict=False)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return program, file


def _refuse_python(module: Any, name: str, is_program: bool = False) -> None:
    """Refuse learners that cannot be compiled or, for a program, exported."""
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if not isinstance(part, Learner):
            continue
        got = type(part).__name__
        if is_program and not part.is_exportable:
            way_out = "to_torchscript takes it" if part.is_scriptable else "it is Python alone"
            raise ValueError(f"{name}: expected learners that torch.export can follow, got {got}; {way_out}")
        if not part.is_scriptable:
            raise ValueError(f"{name}: expected learners that can be compiled, got {got}, Python alone")


def _refuse_blocks(module: nn.Module, blocks: bool) -> None:
    """Refuse blocks of a module that learns rounds in order."""
    if blocks and (why := no_blocks(module)) is not None:
        raise ValueError(f"blocks: expected False, got True, but {why}")


def _with_ids(module: nn.Module) -> nn.Module:
    """Keep ids of arms that are places in the state too.

    A file then takes those of a newer state.
    """
    for part in module.modules():
        if isinstance(part, WithArmIds):
            part._write_ids_out()
    return module


def _copy(module: nn.Module) -> Any:
    """Return an uncompiled copy in evaluation mode."""
    return uncompiled_copy(module).eval()


def _check_suffix(path: str | Path) -> None:
    if Path(path).suffix != ".pt2":
        raise ValueError(f"path: expected a file name that ends in .pt2, got {str(path)!r}")


def _write(path: str | Path | None, file: io.BytesIO) -> None:
    """Write the whole file or none of it."""
    if path is None:
        return
    data = file.getvalue()
    # A package in torch's cache may have a seal already.
    replace_file(path, data if has_seal(data) else sealed(data), _beside(path))


def check_file(path: str | Path) -> None:
    """Raise unless a file has the bytes that were written.

    Call it before ``torch.jit.load`` or ``torch.export.load``, which do not notice changed bytes. Files of this library hold
    their SHA-256 at the end, as the comment of a zip archive; an ONNX graph has it in a file beside it, ``NAME.sha256``, which
    ``sha256sum --check`` reads too.

    Args:
        path: a file of :func:`to_torchscript`, :func:`to_program`, :func:`compile_program`, :func:`to_onnx` or
            :func:`~torchonline.feedback.save_snapshot`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its bytes have changed, or there is no digest: it is older than digests, or of somebody else.

    Example:
        >>> _ = to_torchscript(OFUL(2), path=folder / "policy.pt")
        >>> check_file(folder / "policy.pt")
    """
    data, digest = Path(path).read_bytes(), _digest_file(path)
    try:
        if digest.is_file():
            if digest.read_text().split()[:1] != [hashlib.sha256(data).hexdigest()]:
                raise ValueError(f"expected the bytes of the SHA-256 in {digest.name}, got others")
        elif not has_seal(data):
            raise ValueError("expected a file with its SHA-256, got one without")
    except ValueError as error:
        raise ValueError(f"path: {error}, in {str(path)!r}") from None


def _digest_file(path: str | Path) -> Path:
    return Path(path).with_name(Path(path).name + ".sha256")


def _beside(path: str | Path) -> str:
    return f".{Path(path).name}.{os.getpid()}"
