"""Predictions that stay the same, and the part of a loss that is due to asymmetry."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from meter_sample import Does
from torch import nn
from torch.nn import functional as F

from sesn import AsymmetryLoss, Meter, Rotation, ScaleTranslation, Transform, asymmetry_loss, consistency
from sesn.strategies import SEEDS, random_images

IMAGES = random_images(0, (6, 3, 48, 48))
FACTORS = [0.5, 0.75]


def classifier(seed: int, classes: int = 4) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 8, 7, padding=3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    return nn.Sequential(*layers).double().eval()


# --- consistency


def test_what_works_pixel_by_pixel_is_consistent():
    found = consistency(nn.Identity(), IMAGES, FACTORS)
    assert found.kind == "map"
    assert found.by_factor.shape == found.chance.shape == (2, 6)
    assert found.mean == found.every == 1
    assert found.relative == 0
    assert 0.2 < float(found.chance.mean()) < 0.6  # three classes


def test_an_ordinary_segmenter_changes_its_mind():
    torch.manual_seed(0)
    found = consistency(nn.Conv2d(3, 4, 7, padding=3).double(), IMAGES, FACTORS)
    assert 0 < found.every < found.mean < 1
    assert 0.05 < found.relative < 1.2


def test_a_classifier_is_counted_by_images():
    """Classes by the size of what is seen: half of the blobs change theirs when they are halved."""
    sizes = Does(lambda x: torch.stack([x.square().mean((1, 2, 3)) * x.shape[-1] ** 2 - 40, x.new_zeros(len(x))], 1))
    widths = torch.tensor([2.0, 3.0, 8.0, 9.0])
    x = torch.arange(48) - 23.5
    blobs = torch.exp(-0.5 * (x[:, None].square() + x.square()) / widths[:, None, None].square())[:, None].double()
    found = consistency(sizes, blobs, [1.0, 0.5])
    assert found.kind == "invariant"
    assert found.by_factor[0].tolist() == [1, 1, 1, 1]
    changed = [math.pi * w**2 > 40 > math.pi * w**2 / 4 for w in widths.tolist()]
    assert found.by_factor[1].tolist() == [0.0 if one else 1.0 for one in changed]
    assert found.every == found.by_factor[1].mean()


def test_one_that_always_answers_alike_is_consistent_and_shows_nothing():
    same = Does(lambda x: torch.stack([x.mean((1, 2, 3)).abs() + 1, x.mean((1, 2, 3)) * 0], 1))
    found = consistency(same, IMAGES, FACTORS)
    assert found.mean == 1
    assert math.isnan(found.relative)


def test_a_single_score_says_yes_or_no():
    found = consistency(nn.Conv2d(3, 1, 1).double(), IMAGES, [0.5])
    assert found.mean > 0.99


def test_other_actions_count_too():
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 5, padding=2).double()
    assert consistency(layer, IMAGES, [ScaleTranslation(1.0, (2, 3))]).mean == 1
    assert consistency(layer, IMAGES, [Rotation(90)]).mean < 1


# --- the loss


@given(seed=SEEDS, labelled=st.booleans())
def test_the_part_is_between_nothing_and_all(seed, labelled):
    labels = torch.arange(6) % 4 if labelled else None
    found = asymmetry_loss(classifier(seed), IMAGES, labels, FACTORS)
    assert 0 <= found.averaged <= found.loss
    assert 0 <= found.percent <= 100


def test_it_is_that_of_the_definition():
    network, labels = classifier(0), torch.arange(6) % 4
    scores = [network(IMAGES), *(network(Meter().move(IMAGES, factor)) for factor in FACTORS)]
    losses = [F.cross_entropy(one, labels).item() for one in scores]
    mean = F.cross_entropy(torch.stack(scores).mean(0), labels).item()
    found = asymmetry_loss(network, IMAGES, labels, FACTORS)
    assert found.loss == pytest.approx(sum(losses) / 3)
    assert found.averaged == pytest.approx(mean)
    assert found.percent == pytest.approx(100 * (sum(losses) / 3 - mean) / (sum(losses) / 3))


def test_two_opposite_answers_lose_what_is_known_by_hand():
    """Scores of +a and -a: the loss of their mean is ln 2, and the mean of their losses ln 2 cosh(a / 2)."""
    a = 3.0
    torn = Does(lambda x: torch.stack([x.new_full((len(x),), a if x.shape[-1] == 48 else -a), x[:, 0, 0, 0] * 0], 1))
    found = asymmetry_loss(torn, IMAGES, torch.zeros(6, dtype=torch.int64), [0.5])
    assert found.averaged == pytest.approx(math.log(2))
    assert found.loss == pytest.approx(math.log(2 * math.cosh(a / 2)))


def test_a_symmetric_network_loses_nothing():
    mirror = Rotation(180)
    even = Does(lambda x: (x + x.rot90(2, (-2, -1))).square().mean((2, 3)))
    assert asymmetry_loss(even, IMAGES, None, [mirror]).percent == pytest.approx(0, abs=1e-10)
    assert asymmetry_loss(Does(lambda x: x[..., :9, :9].mean((2, 3)) * 9), IMAGES, None, [mirror]).percent > 0.1


def test_maps_are_moved_back():
    """Of pixels, the interpolation alone is lost; an ordinary convolution loses more."""
    torch.manual_seed(0)
    images = random_images(0, (2, 3, 48, 48), 2.0)
    labels = images.argmax(1)
    steady = asymmetry_loss(nn.Identity(), images, labels, [0.5, ScaleTranslation(1.0, (2, 1))])
    moving = asymmetry_loss(nn.Conv2d(3, 3, 9, padding=4).double(), images, labels, [0.5])
    assert steady.percent < 1
    assert moving.percent > steady.percent
    with pytest.raises(ValueError, match=r"`labels.shape` \(=\(2, 48, 47\)\) must be one class for each score"):
        asymmetry_loss(nn.Identity(), images, labels[..., 1:], [0.5])


# --- what is refused


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: consistency(nn.Identity(), IMAGES, []), "`factors`.*at least one factor"),
        (
            lambda: consistency(classifier(0), IMAGES, [1.0]),
            r"`factors` \(=\[1.0\]\) must be at least one factor other than 1",
        ),
        (lambda: asymmetry_loss(classifier(0), IMAGES, None, [1]), "`factors` .* other than 1"),
        (
            lambda: asymmetry_loss(classifier(0), IMAGES, torch.ones(6, dtype=torch.bool), [0.5]),
            "`labels`.*whole numbers",
        ),
        (lambda: consistency(Does(lambda x: x[:, :, 0]), IMAGES, [0.5]), "give `grid=`"),
        (
            lambda: asymmetry_loss(Does(lambda x: x.mean((1, 2, 3))[:, None]), IMAGES, None, [0.5]),
            "two or more classes",
        ),
        (lambda: asymmetry_loss(classifier(0), IMAGES, torch.full((6,), 4), [0.5]), "`labels`.*from 0 to 3"),
        (lambda: asymmetry_loss(nn.Identity(), IMAGES, None, [Transform(lambda x: -x)]), "moved back"),
        (lambda: asymmetry_loss(nn.Identity(), IMAGES, None, [0.3]), "come back as"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: consistency(classifier(0), IMAGES, 0.5), "`factors` .*list of factors"),
        (lambda: asymmetry_loss(classifier(0), IMAGES, None, None), "`factors` .*list of factors"),
        (lambda: asymmetry_loss(classifier(0), IMAGES, [0] * 6, [0.5]), "`labels` .*tensor of classes"),
        (lambda: consistency(classifier(0), IMAGES, [0.5], meter=3), "`meter` .*sesn.Meter"),
    ],
)
def test_wrong_types_are_refused(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_no_loss_has_no_part():
    assert AsymmetryLoss(0.0, 0.0).percent == 0
