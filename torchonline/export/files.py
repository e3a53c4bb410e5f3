"""Export of learners to files that decide and learn without torchonline.

Every function leaves its argument unchanged and verifies the exported module against the eager one before it returns. The
exception is :func:`compile_program`: its program is already verified, and it does not run the compiled code. Files protect their
state, see :mod:`torchonline.export.guard` and docs/files.md. A file of a private learner holds only its
:meth:`~torchonline.privacy.learners.base.PrivateLearner.released` values, so it decides but does not learn.
"""

import copy
import hashlib
import io
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from torchonline.core.checks import instance_of
from torchonline.core.files import check_path, has_seal, replace_file, sealed
from torchonline.core.generators import generators_left_alone
from torchonline.core.messages import needs
from torchonline.export.archives import Archive, archive_of, as_pt2, for_functions, unpacked, verify_functions
from torchonline.export.compiled import CompiledProgram, place_in_cache, torch_warns_about_itself
from torchonline.export.copies import uncompiled, uncompiled_copy
from torchonline.export.onnx_graphs import graphs_of
from torchonline.export.programs import no_blocks
from torchonline.export.runner import ABOUT, Runner
from torchonline.export.torchscript_classes import as_file
from torchonline.export.tracing import not_scriptable, traced
from torchonline.export.verification import (
    agree,
    agree_on_state,
    check_kind,
    refuse_python,
    trial_of,
)
from torchonline.policies.arm_ids import with_ids
from torchonline.policies.policy import Policy
from torchonline.privacy.composition import private_learners
from torchonline.privacy.learners.base import PrivateLearner


def to_torchscript(
    module: nn.Module, path: str | Path | None = None, *, example: Any = None, trace_encoder: bool = False
) -> torch.jit.ScriptModule:
    """Compile a copy of a module, with its present state, to TorchScript.

    The result is verified, then written to ``path``. The file has ``forward`` (scores), ``select``, ``step`` and ``learn``
    (not for :class:`torchonline.FixedArms`), or ``predict``, ``queries`` and ``step``. Loading it needs only torch or libtorch.
    ``scripted.load_state_dict(module.state_dict(), strict=False)`` loads a learner's newer state into it; it is not strict
    because the file's state has constant tables. ``names()`` lists the names of the actions, and ``name_of(action)`` has
    a name for each id, "" where there is none.

    The file does not raise for the values of its arguments, and does not check shapes. ``step`` and ``learn`` return which rounds
    were learnt: a bool tensor, ``(*B)`` or ``(*B, n)``. A round changes nothing if the eager ``step`` would refuse its values, or
    if the state would not be finite afterwards. ``select`` returns -1 for a decision without an available arm, or with features
    that are not finite. See docs/files.md.

    Args:
        module: a policy, arms with separate models (:class:`torchonline.DisjointArms`), fixed arms
            (:class:`torchonline.FixedArms`), a policy on an encoder (:class:`torchonline.models.BanditHead`), a convex learner
            or a private learner.
        path: path of the file, by custom with the suffix ``.pt``; None writes no file.
        example: inputs of a decision as in ``select``. Needed for a policy on an encoder.
        trace_encoder: whether to trace the encoder on ``example`` instead of compiling it, for encoders that TorchScript cannot
            compile, such as Hugging Face models. A trace takes other numbers of decisions and arms, and texts of other lengths,
            but repeats the branches of ``example``.

    Raises:
        ValueError: ``module`` has a learner that runs in Python only, or an encoder that TorchScript cannot compile.
        RuntimeError: the compiled module differs from ``module``; no file is written.

    Example:
        >>> policy = OFUL(2)
        >>> scripted = to_torchscript(policy)
        >>> arms, k, reward = torch.eye(2), torch.tensor(1), torch.tensor(1.0)
        >>> scripted.step(arms, k, reward), scripted.step(arms, k, torch.nan * reward)
        (tensor(True), tensor(False))
        >>> scripted.select(arms), scripted.estimator.rounds, policy.estimator.rounds
        (tensor(0), tensor(1), tensor(0))
    """
    check_path(path)
    module = uncompiled(module)
    if trace_encoder and not getattr(module, "has_encoder", False):
        raise ValueError(f"trace_encoder: expected False for a {type(module).__name__}, which has no encoder, got True")
    if isinstance(module, PrivateLearner):
        public = _released(module, example)
        scripted, file = _as_script(public)
        _agree_on_released(public, torch.jit.load(file))
    else:
        check_kind(module)
        refuse_python(module, "module")
        module = with_ids(_copy(module))  # other threads may step the original meanwhile
        trial: Any = trial_of(module, example)
        subject = _copy(module)
        if trace_encoder:
            subject.encoder = traced(subject.encoder, trial.items())
        scripted, file = _as_script(as_file(subject))
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
    because programs cannot share a state: ``Round``, ``FixedRound`` or ``ConvexRound`` of ``torchonline.export.programs``. To
    decide only, pass ``learn=False``; to learn only, pass one throw-away arm. The numbers N of decisions and K of arms may vary
    between calls. The program takes arguments in the dtype of the state (of ``example``, for a head).

    The program does not raise for the values of its arguments. After its decisions it returns ``learnt``, bool. Where ``learnt``
    is False, no buffer has changed: ``learn`` is False, the eager ``step`` would refuse the values, or the state would not be
    finite afterwards. A choice is -1 if no arm is available or features are not finite. See docs/files.md.

    With ``blocks=True``, a call learns n earlier rounds at once, like ``learn`` with ``block_size=n``, and then decides:
    ``BlockRound``. The number n may also vary, from 1 to ``restart_every``. A call costs n rows for each model, learnt or not.
    :class:`~torchonline.LocalGLMRegression` makes 12 Newton steps in each call. If they do not reach the minimum, the radius
    grows, but the guarantee holds.

    Args:
        module: as in :func:`to_torchscript`. The program of a private learner returns its decision, or the scores of N contexts.
        path: path of the file, which must end in ``.pt2``; None writes no file. ``torch.export.load(path).module()`` runs it
            without torchonline; :func:`compile_program` compiles it.
        example: as in :func:`to_torchscript`.
        blocks: whether a call learns a block of rounds, ``(*B, n)``, instead of one round.
        noise_scale: whether the last argument of a call is the noise scale of each round, shaped like ``reward``. If False, each
            round uses the learner's own.

    Raises:
        ValueError: ``module`` has a learner that torch.export cannot trace; or ``blocks`` is True and ``module`` learns rounds in
            order, because its ``has_blocks`` is False, its scaler has not frozen, or it is a head with a scaler; or
            ``noise_scale`` is True and its rounds have no noise scale.
        RuntimeError: the program differs from ``module``; no file is written.

    Example:
        >>> program = to_program(OFUL(2)).module()
        >>> arms = torch.tensor([[1.0, 0.0], [0.0, 0.5]]).double().expand(3, 2, 2)
        >>> mask = torch.ones(3, 2, dtype=torch.bool)
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
    check_path(path, ".pt2")
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
    refuse_python(module, "module", is_program=True)
    module = with_ids(_copy(module))
    trial = trial_of(module, example, blocks, noise_scale)
    _refuse_blocks(module, blocks)
    program, file = _as_program(trial.round(_copy(module)), trial.round_arguments(), trial.dynamic_shapes())
    loaded, eager = _loaded(file), trial.round(_copy(module))
    # The program may omit a buffer that no round reads or writes.
    unused = {name: buffer.clone() for name, buffer in eager.named_buffers()}
    trial.compare_rounds(eager, loaded)
    agree_on_state(eager, unused | dict(loaded.named_buffers()), trial.tolerance)
    _write(path, file)
    return program


def to_archive(
    module: Policy, path: str | Path | None = None, *, example: Tensor | None = None, noise_scale: bool = False
) -> Archive:
    """Export a policy as separate programs that share one file.

    They are ``select``, ``step``, ``probabilities`` and ``scores``, and ``start``.

    The programs are pure functions: each takes the state, and ``step`` returns the next one. ``start()`` returns the first, which
    is the policy's present state. A :class:`Runner` keeps the state, and is called like the policy; it
    imports torch alone.
    The archive is verified, then written to ``path``.

    The programs do not raise for the values of their arguments: see :func:`to_program`. The numbers of decisions and of arms
    may vary between calls. For an encoder, so may each dimension of ``example`` that it allows to vary, such as the length of a
    text.

    Args:
        module: a policy or a policy on an encoder.
        path: path of the file, which must end in ``.pt2``; None writes no file.
        example: as in :func:`to_torchscript`.
        noise_scale: whether ``step`` takes the noise scale of the round. If False, each round uses the learner's own.

    Returns:
        The programs by name, and facts. ``archive.runner()`` runs them.

    Raises:
        ValueError: ``module`` has a learner that torch.export cannot trace.
        RuntimeError: the programs differ from ``module``; no file is written.

    Example:
        >>> runner = to_archive(OFUL(2)).runner()
        >>> arms = torch.eye(2)
        >>> k = runner.select(arms)
        >>> runner.step(arms, k, 1.0), runner.step(arms, k, torch.nan), runner.state["estimator.rounds"]
        (tensor(True), tensor(False), tensor(1))
    """
    check_path(path, ".pt2")
    policy, trial = for_functions(module, example, noise_scale)
    archive = archive_of(policy, trial)
    file = as_pt2(archive.about, archive.programs)
    verify_functions(policy, trial, Runner.load(file))
    file.seek(0)
    _write(path, file)
    return archive


@overload
def compile_program(program: torch.export.ExportedProgram, path: str | Path) -> CompiledProgram: ...


@overload
def compile_program(program: Archive, path: str | Path) -> Runner: ...


def compile_program(program: torch.export.ExportedProgram | Archive, path: str | Path) -> CompiledProgram | Runner:
    """Compile a program or an archive to machine code with AOTInductor.

    The package is the fastest way to play small rounds one by one. For d up to some tens, a round is 1.5 to 3 times as fast as in
    eager mode (docs/speed.md). If matrix products dominate a round, it is not faster. It needs a C++ compiler.

    Compiling takes half a minute, or minutes on a busy machine; a program of blocks takes a minute or two, and an archive has
    five programs. The packages are kept in torch's cache of compiled code, in the folder ``TORCHINDUCTOR_CACHE_DIR``. Compiling
    the same program in the same state again then takes a second.

    Args:
        program: result of :func:`to_program` or :func:`to_archive`.
        path: path of the package, which must end in ``.pt2``. ``torch._inductor.aoti_load_package`` loads the package of a
            program, in Python without torchonline or in C++, on the kind of machine it was compiled on. :class:`Runner` loads the
            package of an archive; in C++, ``AOTIModelPackageLoader(path, "step")`` loads one of its functions.

    Returns:
        The loaded package. A program's package has its own state: ``choices, learnt = compiled(past, action, reward, learn, arms,
        mask)``.
    """
    check_path(Path(path), ".pt2")
    if isinstance(program, Archive):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: unpacked(_compiled(each), Path(folder, name)) for name, each in program.programs.items()}
            _write(path, as_pt2(program.about, aoti_files=files))
        return Runner.load(path)
    _write(path, io.BytesIO(_compiled(program)))
    with torch_warns_about_itself():
        return CompiledProgram(torch._inductor.aoti_load_package(str(path)), program.call_spec.out_spec)


def _compiled(program: torch.export.ExportedProgram) -> bytes:
    """Return the package of a compiled program, from torch's cache if it is there."""
    # Constant folding would freeze an evolving buffer of one number at its first value (torch 2.13).
    options = {"joint_graph_constant_folding": False}
    with torch_warns_about_itself(), generators_left_alone():
        cached = place_in_cache(program, options)
        if not cached.exists():
            cached.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cached.parent) as folder:
                package = os.path.join(folder, cached.name)
                torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=options)
                os.replace(package, cached)
        return cached.read_bytes()


def to_onnx(module: Policy, path: str | Path, *, example: Tensor | None = None, noise_scale: bool = False) -> list[str]:
    """Write a policy as a folder of ONNX graphs.

    The graphs are the functions of :func:`to_archive`. Each takes the buffers of the state and the arguments, by name.
    ``start.onnx`` returns the first state, ``select.onnx`` the ``choices``, and ``step.onnx`` returns ``learnt`` and
    ``next.NAME`` for each buffer. They are verified with onnxruntime: choices equal the policy's, and states agree up to
    rounding. ``Runner.load(path)`` runs them. It needs the ``onnx`` extra.

    A rule that draws its choices, such as :class:`~torchonline.SquareCB`, has no ``select.onnx``: draw from its probabilities.

    Args:
        module: as in :func:`to_archive`.
        path: path of the folder, created if missing. Graphs of an earlier call are replaced; other files stay.
        example: as in :func:`to_torchscript`.
        noise_scale: as in :func:`to_archive`.

    Returns:
        The names of the state's buffers.

    Raises:
        ValueError: the policy's scores are random, or it has a learner that runs in Python only; or ``path`` is a file.
        ImportError: onnx, onnxruntime or onnxscript is not installed.
        RuntimeError: the results of the graphs differ from the policy's; nothing is written.

    Example:
        >>> to_onnx(OFUL(2), folder / "policy")
        ['estimator.theta_hat', 'estimator.V', 'estimator.V_inv', 'estimator.rounds', 'estimator.logdet']
        >>> sorted(file.name for file in (folder / "policy").iterdir())
        ['probabilities.onnx', 'scores.onnx', 'select.onnx', 'start.onnx', 'step.onnx', 'torchonline.json']
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path: expected a folder, got the file {str(path)!r}")
    needs("to_onnx", "onnx", "onnx", "onnxscript", "onnxruntime")
    policy, trial = for_functions(module, example, noise_scale)
    archive = archive_of(policy, trial)
    graphs = graphs_of(archive.programs, trial, type(policy).__name__)
    verify_functions(policy, trial, Runner.of_graphs(graphs, archive.about))
    files = {f"{name}.onnx": graph for name, graph in graphs.items()}
    facts = json.dumps(archive.about).encode()
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in (files | {ABOUT: facts}).items()}
    folder.mkdir(parents=True, exist_ok=True)
    # A crash must not leave graphs of two calls with the facts of one.
    for name in (ABOUT, *(f"{function}.onnx" for function in archive.programs)):
        (folder / name).unlink(missing_ok=True)
    files[ABOUT] = json.dumps(archive.about | {"sha256": digests}).encode()  # the last one
    for name, data in files.items():
        replace_file(folder / name, data)
    return list(archive.about["state"])


def released(module: nn.Module) -> Any:
    """Return a copy of a module with released values in place of private learners.

    ``torch.export``, ``torch.jit.trace``, ``torch.save`` and similar functions save all buffers of a module, including the
    secrets of a private learner. Pass them this copy. ``torch.jit.script`` refuses a module that contains a private learner. A
    private learner itself becomes its ``released()``.

    Example:
        >>> parent = torch.nn.ModuleDict({"learner": DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)})
        >>> list(released(parent).state_dict())
        ['learner.theta']
    """
    instance_of("module", module, nn.Module, "an nn.Module")
    # deepcopy replaces the learners by their entries in the memo.
    memo: dict[int, Any] = {id(learner): learner.released() for learner in private_learners(module).values()}
    return copy.deepcopy(module, memo)


def _loaded(file: io.BytesIO) -> Any:
    """Load the module of a program from a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The given buffer is not writable", UserWarning
        )  # torch 2.11 warns about its own buffers
        return torch.export.load(file).module()


def _released(learner: PrivateLearner, example: Tensor | None) -> nn.Module:
    """Return a private learner's released module, which has its own example inputs."""
    if example is not None:
        raise ValueError(f"example: expected None for {type(learner).__name__}, whose inputs are known, got an example")
    return learner.released().eval()


def _agree_on_released(public: Any, loaded: Any) -> None:
    """Raise unless a file decides like the public module, with the same buffers only."""
    inputs = public.example()
    agree("a decision", public(*inputs), loaded(*inputs), 1e-12)
    agree_on_state(public, dict(loaded.named_buffers()), 0.0)
    extra = {name for name, _ in loaded.named_buffers()} - {name for name, _ in public.named_buffers()}
    if extra:
        raise RuntimeError(f"export: expected public buffers only in the file, got also {sorted(extra)}")


def _as_script(subject: nn.Module) -> tuple[torch.jit.ScriptModule, io.BytesIO]:
    """Return a module as TorchScript, and as a file."""
    with warnings.catch_warnings():
        # The caller asked for the format, which torch 2.13 deprecates.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        for part in subject.modules():
            # An encoder may be a LightningModule, some properties of which raise without this flag.
            if hasattr(type(part), "_jit_is_scripting"):
                part.__dict__["_jit_is_scripting"] = True
        try:
            scripted = torch.jit.script(subject)
        except Exception as error:  # of many types
            encoder = getattr(subject, "encoder", None)
            if not isinstance(encoder, nn.Module) or (found := not_scriptable(encoder)) is None:
                raise
            raise ValueError(
                f"module: expected an encoder that TorchScript can compile, got {found}. Pass trace_encoder=True to trace the "
                "encoder on the example, or use to_archive"
            ) from error
        file = io.BytesIO()
        torch.jit.save(scripted, file)
    file.seek(0)
    return scripted, file


def _as_program(
    subject: nn.Module, arguments: tuple[Tensor, ...], shapes: tuple[dict[int, Any], ...]
) -> tuple[torch.export.ExportedProgram, io.BytesIO]:
    """Return a module as a program, and as a file."""
    # Disable gradients for the whole export: a file loses switches of gradient mode inside the graph.
    with torch.no_grad(), generators_left_alone():
        program = torch.export.export(subject, arguments, dynamic_shapes=shapes, strict=False)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return program, file


def _refuse_blocks(module: nn.Module, blocks: bool) -> None:
    """Refuse ``blocks`` for a module that learns rounds in order."""
    if blocks and (why := no_blocks(module)) is not None:
        raise ValueError(f"blocks: expected False, got True, but {why}")


def _copy(module: nn.Module) -> Any:
    """Return an uncompiled copy in evaluation mode."""
    return uncompiled_copy(module).eval()


def _write(path: str | Path | None, file: io.BytesIO) -> None:
    """Write a file atomically."""
    if path is None:
        return
    data = file.getvalue()
    # A package from torch's cache may already have a seal.
    replace_file(path, data if has_seal(data) else sealed(data))


def check_file(path: str | Path) -> None:
    """Raise unless a file's bytes match its SHA-256.

    Call it before ``torch.jit.load`` or ``torch.export.load``, which do not detect changed bytes. Files of this library hold
    their SHA-256 at the end, as the comment of a zip archive. A folder of ONNX graphs has the SHA-256 of each graph in its file
    ``torchonline.json``.

    Args:
        path: a file of :func:`to_torchscript`, :func:`to_program`, :func:`compile_program`, :func:`to_onnx` or
            :func:`~torchonline.feedback.save_snapshot`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: its bytes have changed, or it has no digest: it predates digests, or another library wrote it.

    Example:
        >>> _ = to_torchscript(OFUL(2), path=folder / "policy.pt")
        >>> check_file(folder / "policy.pt")
    """
    try:
        if Path(path).is_dir():
            for name, wanted, found in _digests(Path(path)):
                if found != wanted:
                    raise ValueError(f"expected bytes with the SHA-256 in {ABOUT}, got other bytes of {name}")
        elif not has_seal(Path(path).read_bytes()):
            raise ValueError("expected a file with a SHA-256, got one without")
    except ValueError as error:
        raise ValueError(f"path: {error}, in {str(path)!r}") from None


def _digests(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield names in a folder of ONNX graphs, with the wanted and the found SHA-256."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        wanted = about.pop("sha256")
        files = {name: json.dumps(about).encode() if name == ABOUT else (folder / name).read_bytes() for name in wanted}
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        raise ValueError(f"expected {ABOUT} with the SHA-256 of each graph, got other bytes") from None
    for name, data in files.items():
        yield name, wanted[name], hashlib.sha256(data).hexdigest()
