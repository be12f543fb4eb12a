"""The pytest plugin, on sample projects of three-line tests."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

# Loaded here, or each run of pytest inside pytest would load them anew and forget them again.
import sesn
from sesn.pytest_plugin import OPTIONS

NETWORKS = """
    import pytest
    from torch import nn
    from sesn import ScaleGrid, ScaleLift, basis_a

    def lift():
        return ScaleLift(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)).eval()

    def cnn():
        return nn.Conv2d(1, 2, 7, padding=3)
"""
PASSING = """
    @pytest.mark.scale_equivariance(input="1x64x64", downscale=2, tolerance=1e-4)
    def test_steerable(scale_equivariance):
        scale_equivariance(lift())
"""
FAILING = """
    @pytest.mark.scale_equivariance(input="1x64x64", downscale=2, tolerance=1e-2)
    def test_ordinary(scale_equivariance):
        scale_equivariance(cnn())
"""


def test_a_steerable_network_passes_and_an_ordinary_one_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NETWORKS + PASSING + FAILING)
    result = pytester.runpytest("--strict-markers")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*scale_equivariance(cnn())",
            "E*not scale-equivariant at factor 0.5 (downscale 2): median relative Delta * exceeds the tolerance 0.01 *",
            "E*the probe's own floor is*unrelated images give*",
            "E*likely cause: ordinary convolution: *Replace them by ScaleLift and ScaleConv, for example `sesn.Scale*",
        ]
    )


def test_options_may_stand_in_the_call(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NETWORKS
        + """
    def test_two_downscales(scale_equivariance):
        first, second = scale_equivariance(lift(), input=(1, 48, 48), downscale=[2, 4], tolerance=1e-3, images="1/f2")
        assert (first.factor, second.factor) == (0.5, 0.25)

    def test_fourier(scale_equivariance):
        found = scale_equivariance(nn.Identity(), input="1x16x16", resampler="fourier", crop=0, count=2)
        assert len(found.valid) == 2 and found.crop == 0

    @pytest.mark.scale_equivariance(tolerance=1e-9, input="1x64x64")
    def test_the_call_wins_over_the_marker(scale_equivariance):
        scale_equivariance(lift(), tolerance=1e-3)
"""
    )
    pytester.runpytest().assert_outcomes(passed=3)


def test_every_option_of_the_measurement_is_one_of_the_fixture() -> None:
    measured = {*inspect.signature(sesn.equivariance_error).parameters} - {"module", "images", "factor"}
    assert measured == {*OPTIONS}


def test_a_network_of_one_size_is_measured_on_its_canvas(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NETWORKS
        + """
    @pytest.mark.scale_equivariance(input="1x16x16", canvas="keep")
    def test_scores(scale_equivariance):
        scale_equivariance(nn.Sequential(nn.Flatten(), nn.Linear(256, 4)))
"""
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*not scale-equivariant at factor 0.5 (downscale 2): median relative Delta*"])


def test_a_bias_matters_where_delta_itself_is_judged(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NETWORKS
        + """
    @pytest.mark.scale_equivariance(input="1x64x64", tolerance=1e-3)
    @pytest.mark.parametrize("absolute", [False, True])
    def test_biased(scale_equivariance, absolute):
        layer = lift()
        nn.init.constant_(layer.bias, 9.0)
        scale_equivariance(layer, absolute=absolute)
"""
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines("E*hardly depends on the image*")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("lift(), input='1x64'", "*`input` (='1x64') must be CHANNELSxHEIGHTxWIDTH*"),
        ("lift(), input='1x64x64', downscale=0", "*`downscale` (=0) must be numbers above 0*"),
        ("lift(), size=3", "*scale_equivariance has no option size; it has downscale, tolerance, input, images*"),
        ("lift(), input='3x64x64'", "*the module rejected images of shape*"),
        ("lift(), images='cats'", "*`images` (='cats') must be one of embedded*"),
    ],
)
def test_wrong_options_say_what_is_right(pytester: pytest.Pytester, call: str, words: str) -> None:
    pytester.makepyfile(NETWORKS + f"\n    def test_it(scale_equivariance):\n        scale_equivariance({call})\n")
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(words)


def test_the_marker_takes_names_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NETWORKS + PASSING.replace('input="1x64x64", ', "2, "))
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*takes names only: downscale, tolerance*")


def test_markers_are_listed(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--markers")
    result.stdout.fnmatch_lines("@pytest.mark.scale_equivariance(downscale=2.0, tolerance=None, input='3x96x96'*")


def test_pytest_starts_without_torch() -> None:
    script = "import sys, sesn.pytest_plugin; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_program_that_has_imported_the_package_may_start_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_theirs():\n    pass\n")
    script = "import sys, sesn, pytest; sys.exit(pytest.main(['-W', 'error']))"
    ran = pytester.run(sys.executable, "-c", script)
    assert ran.ret == 0, ran.stderr.str()


def test_a_marker_without_the_fixture_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.scale_equivariance(downscale=2)
        def test_measures_nothing():
            pass

        def test_of_something_else():
            pass
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines("*does not take the fixture*")


def test_a_repository_with_a_marker_of_that_name_means_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    scale_equivariance: theirs\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.scale_equivariance(2)\ndef test_theirs():\n    pass\n")
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)


def test_a_repository_with_a_fixture_of_that_name_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef scale_equivariance():\n    return 7\n")
    pytester.makepyfile("def test_theirs(scale_equivariance):\n    assert scale_equivariance == 7\n")
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)
