"""What is asked of torch: the state it is in, and the only questions that need its private names.

Each private name has a substitute for versions of torch that lack it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from sesn.errors import UsageError

T = TypeVar("T")


def _private(path: str, substitute: Any) -> Any:
    """A private name of torch, or what serves where this version has none."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return substitute if found is None else found


_interpreter = _private("_C._functorch.peek_interpreter_stack", lambda: None)
_batched = _private("_C._functorch.is_legacy_batchedtensor", lambda tensor: False)
_dispatch_mode = _private("_C._get_dispatch_mode", lambda key: None)
_FAKE = _private("_C._TorchDispatchModeKey.FAKE", None)
_tracing = _private("_C._is_tracing", lambda: False)
_dispatch_modes = _private("_C._len_torch_dispatch_stack", lambda: 0)

#: Layers that share a base class which torch does not show.
BATCH_NORM: type[Any] = _private("nn.modules.batchnorm._BatchNorm", nn.BatchNorm2d)
INSTANCE_NORM: type[Any] = _private("nn.modules.instancenorm._InstanceNorm", nn.InstanceNorm2d)
DROPOUT: type[Any] = _private("nn.modules.dropout._DropoutNd", nn.Dropout)


def recording() -> bool:
    """True where tensors may have no values of their own, so that nothing may be looked up in them.

    That is inside torch.compile, torch.export, torch.jit.trace, torch.func, FakeTensorMode and forward-mode
    differentiation, where they have tangents beside their values.
    """
    if torch.compiler.is_compiling():  # first: the compiler cannot follow the other questions
        return True
    return transforming() or _dispatch_mode(_FAKE) is not None or _tracing()


def transforming() -> bool:
    """True inside torch.func and forward-mode differentiation, which see through ordinary operations alone."""
    if torch.compiler.is_compiling():
        return False
    return _interpreter() is not None or getattr(forward_ad, "_current_level", -1) >= 0


def watched() -> bool:
    """True where a dispatch mode sees every operation: a counter of operations would count those of a timing, too."""
    return bool(_dispatch_modes() > 0)


def constant(function: Callable[..., T]) -> Callable[..., T]:
    """Have torch.compile call a function of plain numbers and text once, and take its result for a constant.

    It is `torch.compiler.assume_constant_result`, whose first use takes seconds to import the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def may_keep(like: Tensor) -> bool:
    """May I cache now? Whether what is made for a tensor, its device and its dtype, serves later calls as well.

    Not while a graph is recorded, nor for tensors of another kind than torch's own.
    """
    return not recording() and type(like) in (Tensor, nn.Parameter)


#: What captured graphs read by its address; nobody says when a graph is gone.
_READ_BY_GRAPHS: dict[int, Any] = {}


def capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: what is computed then has no values before the graph is replayed."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def held_for_graphs(kept: T, device: torch.device) -> T:
    """What was kept, never to be freed if a graph that is being captured will read it at each replay."""
    if capturing(device):
        _READ_BY_GRAPHS[id(kept)] = kept
    return kept


def refuse_capture(device: torch.device) -> None:
    """Refuse to make what is to be kept while a graph is captured: it would have no values outside of the graph."""
    if capturing(device):
        raise UsageError(
            "a constant of a layer cannot be made while a CUDA graph is captured; run the module once or twice on an "
            "input of the same shape and dtype, and in the same mode, before the capture"
        )


def picked(tensor: Tensor, places: Sequence[int]) -> Tensor:
    """The parts of a tensor at these places of its first axis.

    A list as an index would be copied to the device, and at each call of a compiled module, which makes constants anew.
    """
    parts = tensor.unbind()
    return torch.stack([parts[place] for place in places])


def numbers_like(tensor: Tensor, values: Sequence[float]) -> Tensor:
    """These numbers in the dtype and on the device of a tensor, without a list that would be copied to the device."""
    return torch.cat([tensor.new_full((1,), value) for value in values])


def version(tensor: Tensor) -> int | None:
    """How often a tensor was written to; None where nobody counts, as in inference mode."""
    return None if tensor.is_inference() else getattr(tensor, "_version", None)


def with_replaced(network: nn.Module, new: Mapping[int, nn.Module]) -> nn.Module:
    """The network with new modules in the place of those of these ids, wherever each is listed, or the new one itself.

    `named_children` lists a module once that its parent has under two names.
    """
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in new:
                parent._modules[name] = new[id(child)]
    return new.get(id(network), network)


def metadata(state: Any) -> dict[str, dict[str, Any]] | None:
    """What torch keeps beside the tensors of a state, by the name of the layer; None for a plain dict."""
    return getattr(state, "_metadata", None)


def needs_replay(grad: Tensor) -> bool:
    """Whether gradients have to be differentiable (create_graph=True), or are many at once (is_grads_batched=True)."""
    return torch.is_grad_enabled() or bool(_batched(grad))


def replayed_gradients(
    plain: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Run `plain` on the inputs with a graph and differentiate that; None for the inputs that are not wanted."""
    again = torch.is_grad_enabled()
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    with torch.enable_grad():
        out = plain(*inputs)
        found = iter(torch.autograd.grad(out, chosen, grad, create_graph=again) if chosen else ())
    return tuple(next(found) if want else None for want in wanted)


def casting(tensor: Tensor) -> bool:
    """True where autocast decides the dtype of operations on this tensor's device."""
    kind = tensor.device.type
    # The compiler of torch 2.6 cannot follow the second question.
    available = kind != "meta" if torch.compiler.is_compiling() else torch.amp.is_autocast_available(kind)
    return available and torch.is_autocast_enabled(kind)


def uncast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where autocast leaves operations on this tensor's device alone."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def backward_uncast(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """A gradient in the precision of what was computed, also where `backward` is called under autocast."""

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> T:
        with uncast(grad):
            return backward(ctx, grad)

    return run


@contextmanager
def eager() -> Iterator[None]:
    """Where compiled modules run as what was compiled, layer by layer, and nothing is compiled."""
    if "torch._dynamo" not in sys.modules:  # then nothing has been compiled, and importing it takes seconds
        yield
        return
    stance: Callable[[str], AbstractContextManager[Any]] = getattr(torch.compiler, "set_stance", nullcontext)
    with warnings.catch_warnings(), stance("force_eager"):
        warnings.filterwarnings("ignore", "Using `torch.compile\\(module\\)` when there are global hooks", UserWarning)
        yield
