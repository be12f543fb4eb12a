"""The fused kernels compiled for GPUs that are not here: no register is spilled, and shared memory suffices.

What a GPU does with them, and how fast, is not tested.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

triton = pytest.importorskip("triton", reason="nox -s kernels installs Triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from sesn.algorithms.fused import kernels, launch  # noqa: E402

tl = kernels.tl
#: Shared memory that a program may have on every GPU since sm_80, in bytes.
SHARED = 100 << 10
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}
#: The numbers in each of the kernels' tuples.
TUPLES = {"steps": 5, "weight_steps": 4, "found_steps": 4, "rows": 7, "columns": 7}


class Usage(NamedTuple):
    """What a compiled kernel takes of a processor: registers a thread, bytes on its stack, and shared bytes."""

    registers: int
    stack: int
    local: int
    shared: int


def types_of(kernel: Any, dtype: torch.dtype, constants: dict[str, Any]) -> dict[str, Any]:
    """The type of each argument, as a launch would find it."""
    number = f"*{DTYPES[dtype]}"
    found: dict[str, Any] = {}
    for name in kernel.arg_names:
        if name in constants:
            found[name] = "constexpr"
        elif name in ("terms", "begins", "largest"):
            found[name] = "*i32"
        elif name == "found":
            found[name] = "*fp64" if dtype == torch.float64 else "*fp32"
        elif name in ("field", "weight", "bias", "down", "across", "out", "grad"):
            found[name] = number
        elif name.endswith("steps") or name in TUPLES:
            found[name] = ("i32",) * TUPLES.get(name, TUPLES["steps"])
        else:
            found[name] = "i32"
    return found


def compiled(case: Case) -> Usage:
    """Compile a kernel with the options of a launch, and ask the assembler's tool what it takes."""
    kernel = getattr(kernels, case.kernel)
    constants = launch.numerics(case.dtype) | case.settings
    types = types_of(kernel, case.dtype, constants)
    # Tensors of torch begin at multiples of 16 bytes, unless they are views.
    pointers = [place for place, kind in enumerate(types.values()) if kind[0] == "*" and case.aligned]
    attributes = {(place,): [["tt.divisibility", 16]] for place in pointers}
    options = {"num_warps": launch.WARPS, "num_stages": 1, "maxnreg": launch.REGISTERS}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION")
        made = triton.compile(source, target=GPUTarget("cuda", case.capability, 32), options=options)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.search(rf"{word}:(\d+)", told)[1]) for word in ("REG", "STACK", "LOCAL"))
    return Usage(registers, stack, local, made.metadata.shared)


class Case(NamedTuple):
    """One way to launch a kernel."""

    kernel: str
    capability: int
    dtype: torch.dtype
    exact: bool
    aligned: bool
    settings: dict[str, Any]

    def __str__(self) -> str:
        flags = [flag.lower() for flag in ("ADJOINT", "PROJECT") if self.settings.get(flag)]
        numbers = DTYPES[self.dtype] + ("" if self.dtype != torch.float32 else "-tf32x3" if self.exact else "-tf32")
        sizes = "{P}x{Q}-{OUTPUTS}".format(**self.settings)
        return "-".join(
            [f"sm_{self.capability}", self.kernel, *flags, numbers, sizes, *(() if self.aligned else ["any"])]
        )


#: How products are computed; float64 and bfloat16 for one size of blocks only.
NUMBERS = [
    *((torch.float32, False), (torch.float32, True), (torch.float16, False)),
    *((torch.float64, False), (torch.bfloat16, False)),
]


def cases() -> list[Case]:
    """The convolution, its adjoint, its epilogue and the gradient of the weights, for blocks of both sizes."""
    found = []
    for capability, p in itertools.product((80, 90), (4, 8)):
        for dtype, exact in NUMBERS[: 5 if p == 4 else 3]:
            mixing = {"P": p, "Q": p, "BIAS": True, "RELU": False, "PROJECT": False, "ADJOINT": False}
            mixing |= launch.mix_tile(p, p, 64, dtype)._asdict()
            projecting = {"RELU": True, "PROJECT": True, **launch.mix_tile(p, p, 64, dtype, project=True)._asdict()}
            weighing = {"P": p, "Q": p, **launch.weigh_tile(p, p, 64, dtype)._asdict()}
            for kernel, settings in (
                ("mix", mixing),
                ("mix", mixing | {"ADJOINT": True}),
                ("mix", mixing | projecting),
                ("weigh", weighing),
            ):
                found.append(Case(kernel, capability, dtype, exact, True, settings))
                if (p, exact) == (4, False):
                    found.append(Case(kernel, capability, dtype, exact, False, settings))
    return found


@pytest.mark.parametrize("case", cases(), ids=str)
def test_compiles_without_spilling(case: Case, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not case.exact)
    usage = compiled(case)
    record_property("kernels", f"{case!s:44} {usage.registers:4} registers {usage.shared:7} bytes shared")
    # Spilled registers lie on the stack: LOCAL alone would stay 0.
    assert usage.stack == 0
    assert usage.local == 0
    assert usage.shared <= SHARED


def test_a_kernel_that_spills_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "REGISTERS", 64)
    usage = compiled(cases()[0])
    assert usage.stack > 0
    assert usage.local == 0
