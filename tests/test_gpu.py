"""`sesn gpu`, rehearsed on the processor: every stage, failures that lose nothing, verdict, page and report."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch
from drill import sesn

from harness.commands import gpu as command
from harness.experiment import Context, Skip
from harness.experiments import EXPERIMENTS, Request, gpu_checks, gpu_speed
from harness.experiments.gpu import GPU, NO_GPU, REHEARSAL, STAGES, rehearsal
from harness.records import Planned, Result
from harness.report import gpu as report
from harness.report.gpu_page import gpu_page
from harness.report.rendering import Material, rendered
from harness.run.engines.work import carry_out
from harness.store.frame import load
from harness.store.writing import Writer

ON_A_GPU = Request(gpu="Some GPU")


def planned(stage: str, request: Request = ON_A_GPU, **settings: Any) -> list[Planned]:
    wanted = {"stage": stage, **settings}
    return [one for one in GPU.plan(request) if wanted.items() <= one.cell.settings.items()]


def done(one: Planned) -> Result:
    return carry_out(one, Context(), lambda *_: None)


def selected(results: Any) -> dict[str, Any]:
    return {"gpu": report.selection(synthetic.frame(results), GPU.version)}


# The plan


def test_the_plan_has_every_stage_and_the_name_of_the_gpu() -> None:
    for budget in ("smoke", "lite", "paper"):
        cells = [one.cell for one in GPU.plan(Request(budget, gpu="Some GPU"))]  # type: ignore[arg-type]
        assert {cell.settings["stage"] for cell in cells} == STAGES.keys()
        assert {cell.settings["gpu"] for cell in cells} == {"Some GPU"}
    assert len({cell.id for cell in cells} | {one.cell.id for one in GPU.plan(ON_A_GPU)}) > len(cells)


def test_two_gpus_have_different_cells() -> None:
    first, second = ({one.cell.id for one in GPU.plan(Request(gpu=name))} for name in ("Some GPU", "Other GPU"))
    assert not first & second


def test_without_a_gpu_every_cell_is_left_out() -> None:
    assert {(one.state, one.reason) for one in GPU.plan(Request())} == {("skipped", NO_GPU)}


# Each stage on the processor


@pytest.mark.parametrize("algorithm", ["auto", "dense", "separable", "spectral"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_numerics_are_within_their_bounds(precision: str, algorithm: str) -> None:
    (one,) = planned("numerics", subject=precision, algorithm=algorithm)
    result = done(one)
    assert result.status == "ok", result.reason
    assert {seen.at["where"] for seen in result.measurements} == gpu_checks.PROBLEMS.keys()
    for seen in result.measurements:
        assert 0 <= seen.values[0] <= seen.at["bound"]  # type: ignore[operator]
    # Shorter numbers do make errors, so that the bounds are about something.
    assert max(seen.values[0] for seen in result.measurements) > {"fp32": 1e-9, "fp16": 1e-5, "bf16": 1e-4}[precision]


def test_a_wrong_algorithm_has_an_error_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    module = gpu_checks.ScaleConv

    def wrong(*args: Any, **options: Any) -> Any:
        layer = module(*args, **options)
        if options["algorithm"] == "separable":
            layer.register_forward_hook(lambda *seen: seen[2] * 1.001)
        return layer

    monkeypatch.setattr(gpu_checks, "ScaleConv", wrong)
    (one,) = planned("numerics", subject="fp32", algorithm="separable")
    result = done(one)
    assert max(seen.values[0] for seen in result.measurements) > 1e-4
    passed, said = report.verdict(selected([result]))
    assert not passed
    assert "Not passed: 1 checks or measurements failed and 0 succeeded (Some GPU)." in said
    assert any("fp32 separable output has an error of 1.0e-03, and may have 1.0e-04" in line for line in said)


def test_numbers_that_are_not_finite_fail() -> None:
    with pytest.raises(ArithmeticError, match="not finite"):
        gpu_checks.relative_error(torch.tensor([float("nan")]), torch.ones(1))


def test_what_needs_a_gpu_is_left_out_with_the_reason() -> None:
    for one in (*planned("self-check"), *planned("numerics", subject="tf32", algorithm="dense")):
        result = done(one)
        assert (result.status, bool(result.reason)) == ("skipped", True)


def test_tf32_is_switched_back() -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with gpu_checks.multiplying(tf32=not before[0]):
        assert torch.backends.cudnn.allow_tf32 != before[0]
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before


@pytest.mark.parametrize("subject", gpu_speed.networks(few=True))
def test_what_is_captured_is_compared(subject: str) -> None:
    (one,) = planned("graph", subject=subject)
    result = done(one)
    assert result.status == "ok", result.reason
    by = {seen.at.get("of") or seen.at["how"]: seen for seen in result.measurements}
    assert by.keys() == {"output", "eager", "graph"} | ({"gradients"} if "training" in subject else set())
    assert by["output"].values == (0.0,)


class FakeGraph:
    """As `torch.cuda.CUDAGraph`: runs nothing when captured, and the captured step at each replay."""

    steps: list[Any] = []  # noqa: RUF012 - one test

    def replay(self) -> None:
        self.steps[0]()


def test_capture_warms_up_on_another_stream_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of `torch.cuda`, with stand-ins that note them."""
    noted: list[str] = []

    class Stream:
        def __init__(self, *_device: Any) -> None:
            self.waited = False

        def wait_stream(self, _other: Any) -> None:
            noted.append("wait")

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            noted.append(self.name)

        def __exit__(self, *_: object) -> None:
            noted.append(f"end of {self.name}")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: Noting("side"))
    monkeypatch.setattr(torch.cuda, "graph", lambda _graph: Noting("capture"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    FakeGraph.steps = [lambda: noted.append("replay")]
    gpu_speed.captured(lambda: noted.append("step"), torch.device("cuda"))()
    warm = ["wait", "side", "step", "step", "step", "end of side", "wait"]
    assert noted == [*warm, "capture", "step", "end of capture", "replay"]


@pytest.mark.parametrize("algorithm", ["auto", "spectral", "textbook"])
def test_layers_are_timed_beside_the_dense_algorithm(algorithm: str) -> None:
    one = planned("layers", algorithm=algorithm)[0]
    result = done(one)
    assert result.status == "ok", result.reason
    assert [seen.metric for seen in result.measurements] == ["step_time", "time_ratio", "peak_memory"]
    assert len(result.measurements[0].values) == one.cell.settings["rounds"]


def test_methods_are_timed_beside_the_plain_network() -> None:
    (one,) = planned("methods", Request(methods=("cnn",), gpu="Some GPU"))
    result = done(one)
    assert result.status == "ok", result.reason
    assert set(result.measurements[1].values) == {1.0}


def test_the_machine_is_told() -> None:
    (one,) = planned("machine")
    (seen,) = done(one).measurements
    assert seen.values[0] > 100
    assert "triton" in seen.at


# The tests of the clone


def listing(tmp_path: Path, text: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(chosen: list[str], _context: Any) -> int:
        Path(chosen[-1].partition("=")[2]).write_text(text, encoding="utf-8")
        return status

    monkeypatch.setattr(gpu_checks, "_pytest", run)


def test_passed_tests_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '<testsuites><testsuite tests="5" failures="0" errors="0" skipped="2"/></testsuites>'
    listing(tmp_path, text, 0, monkeypatch)
    (seen,) = gpu_checks.device_tests(Context(), short=True)
    assert (seen.values, seen.at) == ((3.0,), {"skipped": 2})


def test_failed_tests_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = '<testcase name="test_it"><failure/></testcase>'
    text = f'<testsuites><testsuite tests="5" failures="1" errors="0" skipped="0">{case}</testsuite></testsuites>'
    listing(tmp_path, text, 1, monkeypatch)
    with pytest.raises(RuntimeError, match="1 of 5 tests failed, among them test_it"):
        gpu_checks.device_tests(Context(), short=True)


def test_where_there_are_no_tests_they_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "TESTS", tmp_path)
    with pytest.raises(Skip, match="come with a clone"):
        gpu_checks.device_tests(Context(), short=True)


def test_tests_of_devices_that_are_no_processor_are_marked(pytester: pytest.Pytester) -> None:
    source = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    present = '{"cpu": True, "cuda": torch.cuda.is_available()'
    assert present in source
    pytester.makeconftest(source.replace(present, '{"cpu": True, "cuda": True'))
    pytester.makepyfile("def test_it(device): pass\ndef test_other(): pass")
    pytester.makeini("[pytest]\nmarkers = gpu")
    pytester.runpytest("-m", "gpu", "-v", "-p", "no:randomly").stdout.fnmatch_lines(["*test_it?cuda?*PASSED*"])


# The command


@pytest.mark.parametrize("words", [[], ["--device", "cuda"], ["--device", "cuda:1"]])
def test_without_a_gpu_it_says_so_in_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.chdir(tmp_path)
    ran = sesn("gpu", *words)
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err.strip().splitlines()) == 1
    assert "torch finds no GPU here" in ran.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_stage_lists_all(tmp_path: Path) -> None:
    ran = sesn("gpu", "--device", "cpu", "--only", "magic", "--out", str(tmp_path / "out"))
    assert ran.status == 2
    assert all(stage in ran.err for stage in STAGES)


def test_a_rehearsal_writes_rows_and_a_page_and_continues(tmp_path: Path) -> None:
    words = ("gpu", "--device", "cpu", "--budget", "smoke", "--only", "machine", "--out", str(tmp_path))
    ran = sesn(*words)
    assert ran.status == 0, ran.err
    assert "This was a rehearsal on the processor." in ran.out
    assert "Not tried yet: the tests that take a device" in ran.out
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert page.startswith(f"# sesn on {rehearsal()}"[:20])
    frame = load(tmp_path / "rows")
    assert set(frame["device"]) == {"cpu"}
    assert all(str(name).startswith(REHEARSAL) for name in frame["gpu"])
    assert "nothing is left to do" in sesn(*words).out


def test_a_failed_stage_does_not_lose_the_others(tmp_path: Path) -> None:
    results = list(synthetic._gpu("lite", synthetic.np.random.default_rng(0)))
    place = next(n for n, one in enumerate(results) if one.cell.settings["stage"] == "graph")
    results[place] = replace(results[place], status="failed", measurements=(), reason="RuntimeError: it broke")
    with Writer(tmp_path / "rows") as writer:
        writer.append(*results)
    frame = load(tmp_path / "rows", ["gpu"])
    passed, said, page = gpu_page(frame, GPU.version, "gpu.jsonl")
    assert not passed
    assert said[0].startswith("Not passed: 1 checks or measurements failed")
    assert "Failed in the stage graph, 1: RuntimeError: it broke." in said
    assert "it broke" in page
    assert "Times of layers" in page


def test_the_verdict_says_why_something_was_left_out_and_keeps_the_order_of_the_stages(tmp_path: Path) -> None:
    results = list(synthetic._gpu("lite", synthetic.np.random.default_rng(0)))
    for place, one in enumerate(results):
        if one.cell.settings["stage"] in ("machine", "compile"):
            reason = "there is no compiler" if one.cell.settings["stage"] == "compile" else "nobody knows"
            results[place] = replace(one, status="skipped", measurements=(), reason=reason)
    with Writer(tmp_path / "rows") as writer:
        writer.append(*results)
    found = {"gpu": report.selection(load(tmp_path / "rows", ["gpu"]), GPU.version)}
    passed, said = report.verdict(found)
    assert passed
    (told,) = (line for line in said if "left out" in line)
    assert re.search(r" left out: (.*; )?\d+ because there is no compiler", told)
    assert "1 because nobody knows" in told
    assert list(report.checks_frame(found)["stage"]) == list(STAGES)


def test_the_exit_status_is_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "machine", lambda *_: 1 / 0)  # in this process only: the worker is asked below
    monkeypatch.setattr("harness.commands.campaign.campaign", lambda *_args, **_options: _store(tmp_path / "rows"))
    ran = sesn("gpu", "--device", "cpu", "--only", "machine", "--out", str(tmp_path))
    assert ran.status == 1
    assert "Not passed: 1 checks or measurements failed" in ran.out


def _store(rows: Path) -> None:
    (one,) = planned("machine", Request("lite", gpu=rehearsal()))
    with Writer(rows) as writer:
        writer.append(done(one))


def test_the_rows_can_be_added_elsewhere(tmp_path: Path) -> None:
    results = [one for one in synthetic._gpu("smoke", synthetic.np.random.default_rng(0)) if one.status == "ok"]
    with Writer(tmp_path / "theirs") as writer:
        writer.append(*results)
    ran = sesn("add-rows", str(tmp_path / "theirs" / "gpu.jsonl"), "--rows", str(tmp_path / "ours"))
    assert ran.status == 0, ran.err
    assert len(load(tmp_path / "ours")["cell"].unique()) == len(results)


def test_a_page_of_another_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / command.PAGE).write_text("mine", encoding="utf-8")
    ran = sesn("gpu", "--device", "cpu", "--only", "machine", "--out", str(tmp_path))
    assert ran.status == 2
    assert (tmp_path / command.PAGE).read_text(encoding="utf-8") == "mine"


# The report


def sections(results: Any) -> dict[str, Any]:
    import pandas as pd

    from harness.paper import published

    material = Material(synthetic.frame(results), published(), EXPERIMENTS, pd.DataFrame())
    return {key: rendered(material, key)[0][0] for key in ("gpu", "gpu-numerics", "gpu-layers", "gpu-methods")}


def test_every_table_shows_real_rows() -> None:
    found = sections(synthetic._gpu("lite", synthetic.np.random.default_rng(0)))
    assert all(one.table is not None for one in found.values())
    assert len(found["gpu-layers"].table.lines) == len(gpu_speed.cases(few=False))
    assert "Synthetic GPU" in found["gpu"].provenance


def test_several_gpus_stand_side_by_side_and_rehearsals_do_not() -> None:
    noise = synthetic.np.random.default_rng(0)
    first = list(synthetic._gpu("lite", noise))
    other, rehearsed = (
        [
            replace(
                one,
                cell=replace(one.cell, settings={**one.cell.settings, "gpu": name}),
                provenance={**one.provenance, "device": device, "machine": name},
            )
            for one in first
        ]
        for name, device in (("Other GPU", "cuda:0"), (rehearsal(), "cpu"))
    )
    found = sections([*first, *other, *rehearsed])
    assert {line[0].text for line in found["gpu"].table.lines} == {"Synthetic GPU", "Other GPU"}
    alone = sections(rehearsed)
    assert {line[0].text for line in alone["gpu"].table.lines} == {rehearsal()}


def test_rehearsed_rows_render(tmp_path: Path) -> None:
    cells = [planned("machine")[0], planned("numerics", subject="fp32", algorithm="dense")[0]]
    results = [done(one) for one in [*cells, planned("layers", algorithm="dense")[0]]]
    found = sections(results)
    assert [one.table is None for one in found.values()] == [False, False, False, True]


def test_without_rows_the_part_says_why() -> None:
    from harness.report.findings import WORDS

    (part,) = [part for part in WORDS["parts"] if "gpu" in part["artefacts"]]
    assert "Nobody has sent rows from a GPU yet" in part["empty"]
    assert "sesn gpu" in part["empty"]
    assert all(one.table is None for one in sections([]).values())
