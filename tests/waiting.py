"""A device whose results never arrive: whatever would wait for them is refused.

The meta device stands for it, since it computes nothing and layers treat it like any accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Operations after which the host must know values, or how many there are. CUDA waits in all of them.
WAITING = (
    *("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "masked_select", "argwhere"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "histc", "_linalg_check_errors"),
    *("repeat_interleave", "one_hot", "_ctc_loss", "lift_fresh"),
)
#: Functions that copy numbers of the host to the device, out of sight of the mode below.
COPYING = ((torch, ("tensor", "as_tensor", "asarray", "from_numpy")), (Tensor, ("new_tensor",)))


@contextmanager
def nothing_from_the_host() -> Iterator[None]:
    """Refuse tensors that are made of Python's or numpy's numbers, as a list of indices is.

    A TorchFunctionMode would not reach the backward pass.
    """

    def refuse(*_args: Any, **_options: Any) -> None:
        raise AssertionError("numbers are copied to the device, which waits for it")

    def refuse_lists(taken: Callable[..., Any]) -> Callable[..., Any]:
        def index(tensor: Tensor, where: Any, *value: Any) -> Any:
            parts = where if isinstance(where, tuple) else (where,)
            return (
                refuse() if any(isinstance(one, list | np.ndarray) for one in parts) else taken(tensor, where, *value)
            )

        return index

    with pytest.MonkeyPatch.context() as patch:
        for owner, names in COPYING:
            for name in names:
                patch.setattr(owner, name, refuse)
        for name in ("__getitem__", "__setitem__"):
            patch.setattr(Tensor, name, refuse_lists(getattr(Tensor, name)))
        yield


class NeverArrives(TorchDispatchMode):
    """Refuses an operation that waits for a device, or that copies between it and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert name not in WAITING, f"{func} waits for the device"
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
            masks = [one for one in tree_leaves(args[1]) if isinstance(one, Tensor) and one.dtype == torch.bool]
            assert not masks, f"{func} with a mask waits for the number of its elements"
        # Whether it is a copy or not: one operand that is elsewhere has to come here, or this one has to go there.
        places = {one.device.type for one in given} | {torch.device((kwargs or {}).get("device") or "meta").type}
        assert places <= {"meta"}, f"{func} copies between the devices {sorted(places)}, and waits for it"
        self.operations += 1
        return func(*args, **(kwargs or {}))


def host_constants(module: nn.Module, shape: tuple[int, ...]) -> list[str]:
    """What the compiled module takes from the host at every call: numbers written into its graphs, tensors elsewhere.

    A compiled module makes its constants anew at each call.
    """
    graphs: list[GraphModule] = []

    def keep(graph: GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    torch.compiler.reset()  # of one function, torch compiles eight versions at most
    compiled = torch.compile(module, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
    compiled(torch.ones(shape, device="meta", requires_grad=True)).sum().backward()
    return [str(node) for graph in graphs for node in graph.graph.nodes if _is_of_the_host(node)]


def _is_of_the_host(node: Node) -> bool:
    made = [one for one in tree_leaves(node.meta.get("val")) if isinstance(one, Tensor)]
    return node.op == "get_attr" or any(one.device.type != "meta" for one in made)


def run_without_waiting(module: nn.Module, shape: tuple[int, ...]) -> NeverArrives:
    """Warm up, for constants are made once, then train and evaluate where nothing may wait."""
    device = torch.device("meta")
    x = torch.ones(shape, device=device, requires_grad=True)
    for training in (True, False):
        module.train(training)(x)
        with torch.no_grad():
            module(x)
    with nothing_from_the_host(), NeverArrives() as mode:
        module.train()(x).square().sum().backward()
        assert x.grad is not None
        module.eval()(x).square().sum().backward()
        with torch.no_grad():
            module(x)
    return mode
