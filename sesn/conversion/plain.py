"""export_plain: a network of steerable layers as a program of ordinary convolutions, which needs no sesn."""

from __future__ import annotations

import copy
from inspect import Parameter, signature
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn._source import worded
from sesn._torch import with_replaced
from sesn.errors import WrongTypeError
from sesn.layers.conv import ScaleConv, longer
from sesn.layers.steerable import SteerableConv, pair_of, side_by_side
from sesn.layers.transpose import ScaleConvTranspose

Conv = TypeVar("Conv", nn.Conv2d, nn.ConvTranspose2d)


def export_plain(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Export a network in eval mode as a program of torch alone, with the kernels of its layers already composed.

    The program has one ordinary convolution for each scale, and runs where sesn is not installed. `torch.export.save`
    writes it and `torch.export.load` reads it. Its `module()` is the network, and `torch.onnx.export` takes the program
    as it is. The batch's size stays open, and so do the sides of the image where the network's layers leave them open.

    Args:
        model: a network with layers of sesn. It is left as it is.
        example: an image [b, c, h, w], or a field [b, c, s, h, w] for a network that takes fields.

    Returns:
        The program, in the precision of the network and on its device.

    Raises:
        UsageError: the arguments are of other types, or torch cannot export the network.

    Example:
        >>> basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.41, 2.0]), 3)
        >>> network = nn.Sequential(sesn.ScaleLift(1, 4, basis), nn.ReLU(), sesn.ScaleProjection()).eval()
        >>> program = sesn.export_plain(network, torch.randn(1, 1, 16, 16))
        >>> image = torch.randn(3, 1, 20, 24)
        >>> torch.allclose(program.module()(image), network(image), atol=1e-6)
        True
    """
    if not isinstance(model, nn.Module):
        raise WrongTypeError(_checks.complaint("model", model, "a torch module"))
    _checks.real_tensor("example", example, "b c s h w" if getattr(example, "ndim", 4) == 5 else "b c h w")
    # Torch takes a batch of one for a network that can have no other.
    images = example if example.shape[0] > 1 else torch.cat([example, example])
    sides = dict.fromkeys((0, example.dim() - 2, example.dim() - 1), torch.export.Dim.AUTO)
    with worded(f"exporting `model` with `example` {list(example.shape)}"), torch.no_grad():
        plain = copy.deepcopy(model).eval()
        new = {id(layer): plain_layer(layer) for layer in plain.modules() if isinstance(layer, SteerableConv)}
        plain = with_replaced(plain, new)
        first = next(iter(signature(plain.forward).parameters.values()))
        together = first.kind is Parameter.VAR_POSITIONAL  # torch counts all of *args as one argument
        return torch.export.export(plain, (images,), dynamic_shapes=((sides,),) if together else (sides,))


def plain_layer(layer: SteerableConv) -> nn.Module:
    """What a steerable layer computes, with ordinary convolutions."""
    return PlainTranspose(layer) if isinstance(layer, ScaleConvTranspose) else PlainConv(layer)


class PlainTranspose(nn.Module):
    """What a transposed steerable layer computes, with one nn.ConvTranspose2d for each scale."""

    def __init__(self, layer: ScaleConvTranspose) -> None:
        super().__init__()
        self.scales = nn.ModuleList(_transposed(layer, kernel) for kernel in layer.kernels())

    def forward(self, field: Tensor) -> Tensor:
        """From a field to a finer one."""
        return torch.stack([conv(maps) for conv, maps in zip(self.scales, field.unbind(2), strict=True)], dim=2)


def _transposed(layer: ScaleConvTranspose, kernel: Tensor) -> nn.ConvTranspose2d:
    side, steps = kernel.shape[-1], pair_of(layer.stride)
    options: dict[str, Any] = {"stride": steps, "padding": side // 2, "bias": layer.bias is not None}
    options["output_padding"] = tuple(step - 1 for step in steps)
    conv = nn.ConvTranspose2d(layer.in_channels, layer.out_channels, side, **options).to(layer.weight)
    return _with_weights(conv, kernel.transpose(0, 1), layer.bias)


class PlainConv(nn.Module):
    """What a steerable layer computes, with one nn.Conv2d for each scale of its output."""

    def __init__(self, layer: SteerableConv) -> None:
        super().__init__()
        kernels = layer.kernels()
        #: How many scales each sees: the same and, if the layer interacts across scales, larger ones.
        self.seen = [kernel.shape[1] * layer.groups // layer.in_channels for kernel in kernels]
        self.groups, self.repeats = layer.groups, layer.repeats if isinstance(layer, ScaleConv) else 0
        #: Pixels of padding along rows and columns; where negative, pixels that are cut off.
        unused = [(layer.kernel_size - kernel.shape[-1]) // 2 for kernel in kernels]
        self.margins = [tuple(pixels - less for pixels in pair_of(layer.padding)) for less in unused]
        convs = (_convolution(layer, *each) for each in zip(kernels, self.margins, strict=True))
        self.scales = nn.ModuleList(convs)

    def forward(self, x: Tensor) -> Tensor:
        """From an image or a field to a field."""
        maps = []
        x = x if x.dim() == 4 else longer(x, self.repeats)
        for k, (conv, seen, margin) in enumerate(zip(self.scales, self.seen, self.margins, strict=True)):
            scales = x if x.dim() == 4 else side_by_side(x[:, :, k : k + seen].unbind(2), self.groups)
            down, across = (min(pixels, 0) for pixels in margin)
            maps.append(conv(F.pad(scales, (across, across, down, down)) if down or across else scales))
        return torch.stack(maps, dim=2)


def _convolution(layer: SteerableConv, kernel: Tensor, margin: tuple[int, ...]) -> nn.Conv2d:
    options: dict[str, Any] = {
        "groups": layer.groups,
        "padding": tuple(max(pixels, 0) for pixels in margin),
        "padding_mode": layer.padding_mode,
        "bias": layer.bias is not None,
    }
    out_channels, in_channels, side, _ = kernel.shape
    conv = nn.Conv2d(in_channels * layer.groups, out_channels, side, stride=layer.stride, **options).to(layer.weight)
    return _with_weights(conv, kernel, layer.bias)


def _with_weights(conv: Conv, kernel: Tensor, bias: Tensor | None) -> Conv:
    conv.weight.copy_(kernel)
    if conv.bias is not None and bias is not None:
        conv.bias.copy_(bias)
    return conv
