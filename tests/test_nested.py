"""The nested ReLU against its definition, and its laws: exact between its sizes, nearly so under translation."""

from __future__ import annotations

import copy
import math
import pickle
from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from measures import EXPORTS, ROUNDING, assert_same, put, relative
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import sesn
from sesn import BandlimitedReLU, NestedReLU, UsageError, WrongTypeError, rescale, translate
from sesn.algorithms.banded import trigonometric_matrix
from sesn.layers import nested
from sesn.strategies import SEEDS, images, random_images

Size = tuple[int, int]
LEADING = st.sampled_from([(), (2,), (1, 2), (1, 2, 3)])
SHORT = st.integers(2, 7)
#: Sides of which no two are neighbours in the waves that they hold, so that every Nyquist frequency can be dropped.
APART = st.lists(st.integers(2, 12), min_size=1, max_size=4, unique=True).map(lambda found: [3 * n for n in found])


def waves(points: int, frequency: int) -> Tensor:
    """exp(2 pi i k u) at the middles u of so many equal parts of the map."""
    places = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    return torch.exp(2j * math.pi * frequency * places)


def amplitude(x: Tensor, k: int, m: int) -> Tensor:
    """The amplitude of one wave in x [..., h, w]."""
    wave = torch.outer(waves(x.shape[-2], k), waves(x.shape[-1], m))
    return (x * wave.conj()).mean(dim=(-2, -1))


def values(amplitudes: dict[Size, Tensor], points: Size) -> Tensor:
    """The sum of waves on a grid."""
    down, across = (torch.stack([waves(count, wave[axis]) for wave in amplitudes]) for axis, count in enumerate(points))
    return torch.einsum("...k, kh, kw -> ...hw", torch.stack(list(amplitudes.values()), dim=-1), down, across).real


def defined(x: Tensor, sizes: list[Size], oversample: int) -> Tensor:
    """Every wave by itself: of the ReLU at the smallest size that holds it."""
    own, listed = (x.shape[-2], x.shape[-1]), sorted(set(sizes))
    chain = [size for size in listed if size[0] <= own[0] and size[1] <= own[1]] + [own]
    reach = [range(-(side // 2), side // 2 + 1) for side in own]
    spectrum = {wave: share(own, wave, listed) * amplitude(x, *wave) for wave in product(*reach)}
    found = {}
    rectified = {size: at_size(spectrum, size, listed, oversample) for size in chain}
    for wave in spectrum:
        size = next((size for size in chain if share(size, wave, listed)), None)
        if size is not None and not any(unseen(wave, smaller, listed) for smaller in chain[: chain.index(size)]):
            found[wave] = share(size, wave, listed) * amplitude(rectified[size], *wave)
    return values(found, own)


def at_size(spectrum: dict[Size, Tensor], size: Size, listed: list[Size], oversample: int) -> Tensor:
    """The ReLU of the waves that a size holds, on its grid."""
    held = {wave: amount for wave, amount in spectrum.items() if share(size, wave, listed)}
    return torch.relu(values(held, points(size, listed, oversample)))


def share(size: Size, wave: Size, listed: list[Size]) -> float:
    """How much a size holds of a wave: of its Nyquist frequency nothing if it is listed, else half along each axis."""
    at_the_edge = 0.0 if size in listed else 0.5
    beyond = [2 * abs(k) - side for side, k in zip(size, wave, strict=True)]
    return math.prod(1.0 if excess < 0 else at_the_edge * (excess == 0) for excess in beyond)


def unseen(wave: Size, size: Size, listed: list[Size]) -> bool:
    """Whether the wave has the Nyquist frequency of a listed size; the next listed size must hold others too."""
    if size not in listed:
        return False
    following = [*listed, (99, 99)][listed.index(size) + 1]
    edges = [side // 2 if side % 2 == 0 and new > side + 2 else -1 for side, new in zip(size, following, strict=True)]
    inside = all(2 * abs(k) < side or abs(k) == edge for k, side, edge in zip(wave, size, edges, strict=True))
    return inside and any(abs(k) == edge for k, edge in zip(wave, edges, strict=True))


def points(size: Size, listed: list[Size], oversample: int) -> Size:
    """The grid: the pixels; or of enough points, a multiple of those of the largest size, or of its own if unlisted."""
    if oversample == 1:
        return size
    enough, whole = (size, listed[-1]) if size in listed else (listed[-1], size)
    most = (max(sides) for sides in zip(size, enough, strict=True))
    rows, columns = (
        next(m for m in range(oversample * side, 999) if m % step == 0) for side, step in zip(most, whole, strict=True)
    )
    return rows, columns


@given(
    image=images(SHORT, SHORT, leading=LEADING, exponent=0.5),
    sizes=st.lists(SHORT, min_size=1, max_size=3),
    oversample=st.integers(1, 3),
)
def test_each_wave_comes_from_the_smallest_size_that_holds_it(device, image, sizes, oversample):
    image = put(image, device)
    assert_same(NestedReLU(sizes, oversample)(image), defined(image, [(side, side) for side in sizes], oversample))


@given(
    image=images(SHORT, SHORT, leading=(2,), exponent=0.5),
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3),
)
def test_rectangles_are_nested_too(device, image, sizes):
    image, pairs, side = put(image, device), [], (1, 1)
    for step in sizes:
        side = side[0] + step[0], side[1] + step[1]
        pairs.append(side)
    assert_same(NestedReLU(pairs)(image), defined(image, pairs, 2))


def one_phase_kept(image: Tensor, side: int) -> Tensor:
    """Ideal downscaling that keeps a part of the new Nyquist frequency, as others may; the resampler here does not."""
    before = image.shape[-1]
    places = (torch.arange(side, dtype=torch.float64, device=image.device) + 0.5 - side / 2) * before / side
    matrix = trigonometric_matrix(places, before, side // 2, exact=side % 2 == 0)
    return matrix @ image @ matrix.mT


@given(sizes=APART, oversample=st.integers(1, 3), seed=SEEDS, leading=LEADING)
def test_it_commutes_with_ideal_downscaling_between_its_sizes(device, sizes, oversample, seed, leading):
    """Of white noise, which has as much beyond the small map's Nyquist frequency as below it."""
    rectify, largest = NestedReLU(sizes, oversample), max(sizes)
    image = put(random_images(seed, (*leading, largest, largest), 0.0), device)
    for side in sizes:
        factor = side / largest
        small = rescale(rectify(image), factor, "fourier")
        assert relative(rectify(rescale(image, factor, "fourier")), small) < ROUNDING
        small = one_phase_kept(rectify(image), side)
        assert relative(rectify(one_phase_kept(image, side)), small) < ROUNDING


@given(seed=SEEDS)
def test_it_commutes_with_ideal_downscaling_of_rectangles(device, seed):
    rectify = NestedReLU([(24, 36), (16, 24), (20, 30)])
    image = put(random_images(seed, (2, 24, 36), 0.0), device)
    for factor in (2 / 3, 5 / 6):
        small = rescale(rectify(image), factor, "fourier")
        assert relative(rectify(rescale(image, factor, "fourier")), small) < ROUNDING


@pytest.mark.parametrize("fault", ["Nyquist kept", "Nyquist kept in larger maps", "the largest size first"])
def test_the_law_can_fail(monkeypatch, fault):
    """Without any one of these the layer is no better than others, whatever is left of a Nyquist frequency."""
    image = random_images(0, (3, 24, 24), 0.0)
    if fault == "Nyquist kept":
        monkeypatch.setattr(NestedReLU, "_held", lambda self, size: size)
    elif fault == "Nyquist kept in larger maps":
        monkeypatch.setattr(nested, "_unseen", lambda size, larger: 0)
    else:
        monkeypatch.setattr(nested, "_surrounded", lambda inner, outer, unseen: outer)
    rectify = NestedReLU([24, 16])
    assert relative(rectify(one_phase_kept(image, 16)), one_phase_kept(rectify(image), 16)) > 1e-4


@given(image=images(st.integers(2, 19), leading=(2,)))
def test_on_a_map_below_all_sizes_it_is_a_relu(device, image):
    image = put(image, device)
    assert_same(NestedReLU([20], 1)(image), torch.relu(image))


@pytest.mark.parametrize("sizes", [range(1, 26), [*range(2, 26, 2), 25], [22, 23, 24, 25]])
def test_where_neighbours_are_listed_no_wave_is_lost(sizes):
    """Each is the Nyquist frequency of an even size, and all that the next size adds."""
    above = 5 + random_images(0, (3, 25, 25), 0.0)
    assert_same(NestedReLU(sizes)(above), above)


@given(image=images(leading=(1, 1, 2), cutoff=0.5))
def test_a_positive_field_passes_and_a_negative_one_does_not(device, image):
    image = put(image, device)
    above = image + 8 * image.abs().max()
    rectify = NestedReLU([image.shape[-1] | 1])
    assert_same(rectify(above), above)
    assert torch.equal(rectify(-above), torch.zeros_like(above))


@given(image=images(leading=(2,), exponent=0.5), sizes=APART)
def test_it_commutes_with_turns_and_mirrors(device, image, sizes):
    """The grids of all sizes are the same seen from each side."""
    image, rectify = put(image, device), NestedReLU(sizes)
    assert_same(rectify(image.rot90(1, (-2, -1))), rectify(image).rot90(1, (-2, -1)))
    assert_same(rectify(image.flip(-1)), rectify(image).flip(-1))


def shifted(sizes: list[int], oversample: int, image: Tensor) -> float:
    """Delta of a translation by one pixel."""
    rectify = NestedReLU(sizes, oversample)
    return relative(rectify(translate(image, 1, 0, "circular")), translate(rectify(image), 1, 0, "circular"))


@given(seed=SEEDS)
def test_translation_by_a_pixel_is_exact_at_the_largest_size_and_nearly_so_at_others(device, seed):
    """At oversample 1, as in networks of Fourier layers, it is lost."""
    image = put(random_images(seed, (2, 96, 96)), device)
    assert shifted([96, 68, 47], 2, image) < ROUNDING
    assert shifted([100, 68, 47], 2, image) < 1e-4
    assert shifted([100, 68, 47], 4, image) < 1e-5
    assert shifted([96, 68, 47], 1, image) > 1e-3


@pytest.mark.parametrize("sizes", [[3, 5], [96, 5]])
def test_one_pixel(sizes):
    for value in (-2.0, 3.0):
        pixel = torch.full((1, 1), value, dtype=torch.float64)
        assert_same(NestedReLU(sizes)(pixel), pixel.relu())


@given(seed=SEEDS, side=st.integers(16, 95).filter(lambda side: side != 68), exponent=st.floats(0, 3))
@example(seed=19, side=18, exponent=2.0)  # of four images the band-limited one is better by chance, by one per cent
def test_at_other_sizes_it_is_no_worse_than_the_band_limited_one(device, seed, side, exponent):
    """Of white noise as well as of smooth images, where aliasing at the smaller size is all that is left.

    It is better by more than one per cent on average, which chance does not hide with so many images.
    """
    image = put(random_images(seed, (16, 96, 96), exponent), device)

    def delta(rectify: nn.Module) -> float:
        small = rescale(rectify(image), side / 96, "fourier")
        return relative(rectify(rescale(image, side / 96, "fourier")), small)

    assert delta(NestedReLU([96, 68])) <= delta(BandlimitedReLU("circular"))


def test_at_other_sizes_it_needs_the_oversampling_of_its_default():
    """On its own pixels it is worse there than the band-limited one, as its docstring says."""
    image = random_images(0, (4, 96, 96))
    small = rescale(image, 80 / 96, "fourier")
    once, banded = (
        relative(rectify(small), rescale(rectify(image), 80 / 96, "fourier"))
        for rectify in (NestedReLU([96, 68], 1), BandlimitedReLU("circular"))
    )
    assert once > banded


def test_any_pointwise_function_and_module_will_do():
    image = random_images(0, (2, 15, 15))
    assert_same(NestedReLU([15], 1, nonlinearity=torch.tanh)(image), image.tanh())
    slope = NestedReLU([9, 15], nonlinearity=nn.PReLU(dtype=torch.float64))
    slope(image).sum().backward()
    assert [name for name, value in slope.named_parameters() if value.grad is not None] == ["nonlinearity.weight"]


def test_gradients():
    image = random_images(0, (2, 7, 9), 0.0).requires_grad_()
    rectify = NestedReLU([4, 6], nonlinearity=nn.functional.softplus)
    assert torch.autograd.gradcheck(rectify, image)
    assert torch.autograd.gradgradcheck(rectify, image)
    assert torch.autograd.gradcheck(NestedReLU([4, 6]), image)


def test_single_precision_is_rounded_double_precision():
    image = random_images(0, (2, 3, 96, 96))
    rectify = NestedReLU([96, 68, 47])
    torch.testing.assert_close(rectify(image.float()), rectify(image).float(), rtol=1e-4, atol=1e-5)


def test_it_runs_where_tensors_have_no_values():
    rectify, shape = NestedReLU([48, 34]), (2, 3, 96, 40)
    assert rectify(torch.zeros(shape, device="meta")).shape == shape
    with FakeTensorMode():
        assert rectify(torch.zeros(shape)).shape == shape
    assert torch.isfinite(rectify(torch.ones(shape))).all()  # nothing of the above was kept


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8), (2, 8, 0)])
def test_of_nothing_it_is_nothing(shape):
    assert NestedReLU([4, 8])(torch.zeros(shape)).shape == shape


@pytest.mark.slow
def test_it_compiles_with_open_shapes():
    torch.compiler.reset()
    rectify = NestedReLU([6, 9])
    compiled = torch.compile(rectify, backend="aot_eager", fullgraph=True, dynamic=True)
    for side in (5, 6, 9, 12, 13):
        image = random_images(side, (2, 1, side, side + 1)).float()
        torch.testing.assert_close(compiled(image), rectify(image), rtol=1e-5, atol=1e-5)
    torch.compiler.reset()


@EXPORTS
def test_it_is_exported_for_any_batch():
    rectify, image = NestedReLU([6, 9]).eval(), random_images(0, (2, 3, 12, 12)).float()
    batch = {0: torch.export.Dim("b", min=1, max=64)}
    program = torch.export.export(rectify, (image,), dynamic_shapes=(batch,)).module()
    torch.testing.assert_close(program(image[:1]), rectify(image[:1]), rtol=1e-5, atol=1e-5)


def test_it_is_copied_and_pickled():
    rectify, image = NestedReLU([6, 9]), random_images(0, (1, 9, 9))
    for twin in (copy.deepcopy(rectify), pickle.loads(pickle.dumps(rectify))):
        assert torch.equal(twin(image), rectify(image))


def test_it_says_what_differs_from_the_defaults():
    assert repr(NestedReLU([96, 68])) == "NestedReLU(sizes=[68, 96])"
    assert repr(NestedReLU([(4, 6), (8, 12)], 1)) == "NestedReLU(sizes=[(4, 6), (8, 12)], oversample=1)"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([],), UsageError, r"`sizes` \(=\[\]\) must be at least one size"),
        ((96,), WrongTypeError, r"`sizes` \(=96\) must be several sides, or pairs"),
        (("96",), WrongTypeError, r"`sizes` \(='96'\) must be several sides"),
        (([0],), UsageError, r"`sizes` \(=0\) must be at least 1"),
        (([9.5],), WrongTypeError, r"`sizes` \(=9.5\) must be a whole number"),
        (([(4, 8), (6, 6)],), UsageError, r"must be nested: \(4, 8\) does not fit into \(6, 6\)"),
        (([9], 0), UsageError, r"`oversample` \(=0\) must be at least 1"),
        (([9], 1.5), WrongTypeError, r"`oversample` \(=1.5\) must be a whole number"),
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        NestedReLU(*arguments)


def test_bad_inputs():
    with pytest.raises(WrongTypeError, match=r"`nonlinearity` \(='relu'\) must be a function or module"):
        NestedReLU([4], nonlinearity="relu")
    with pytest.raises(UsageError, match=r"`x.shape` \(=\(3,\)\) must be \[..., h, w\]"):
        NestedReLU([4])(torch.zeros(3))
    with pytest.raises(WrongTypeError, match="floating-point"):
        NestedReLU([4])(torch.zeros(3, 3, dtype=torch.int64))
    for rectify in (NestedReLU([4]), BandlimitedReLU()):
        with pytest.raises(WrongTypeError, match="`x` must be a torch tensor, got list"):
            rectify([1.0, 2.0])
    for wrong, got in ((lambda x: x[..., ::2], r"a tensor of \(3, 8, 4\)"), (lambda x: None, "NoneType")):
        with pytest.raises(
            WrongTypeError, match=rf"`nonlinearity` must return .* \(3, 8, 8\), got {got}; make it work"
        ):
            NestedReLU([4], nonlinearity=wrong)(torch.zeros(3, 4, 4))


def test_it_is_public():
    assert sesn.NestedReLU is NestedReLU
