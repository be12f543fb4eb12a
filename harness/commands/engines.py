"""Where cells run, by the options of `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.data import named_root
from harness.experiment import Context
from harness.records import Scalar
from harness.run.engines.cluster import Cluster
from harness.run.engines.local import Local
from harness.run.engines.work import cores, devices, for_workers, threads_of_each
from harness.run.training.job import Numerics
from sesn._checks import one_of, require, whole
from sesn.tools.files import check_writable_folder

ENGINES = ("local", "ray")
#: Cells that wait for their data may outnumber the cores, but not by much.
JOBS_PER_CORE = 8
MOST_ELSEWHERE = 1024


@dataclass(frozen=True)
class Where:
    """The options of `run`, checked; there is a folder of checkpoints and logs wherever something is run."""

    engine: str
    jobs: int | None
    device: str
    threads: int | None = None
    address: str | None = None
    data: Path | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        for name, (most, reason) in self._bounds().items():
            if (given := getattr(self, name)) is not None:
                require(whole(name, given, 1) <= most, name, given, f"at most {most}", reason)
        require(
            self.address is None or self.engine == "ray", "address", self.address, "left out", "or use --engine ray"
        )
        if self.scratch is not None:
            check_writable_folder("scratch", self.scratch, "worker-0.log")

    def _bounds(self) -> dict[str, tuple[int, str]]:
        """The most jobs and threads, and why; of other machines, and of a plan for them, no more is known than this."""
        if self.address is not None or self.scratch is None:
            return dict.fromkeys(("jobs", "threads"), (MOST_ELSEWHERE, "no machine has so many cores"))
        here = f"this machine has {cores()} cores"
        return {
            "jobs": (JOBS_PER_CORE * cores(), f"{here}, and each job is a process that holds torch in memory"),
            "threads": (cores(), f"{here}; more threads would only wait for one another"),
        }

    @property
    def workers(self) -> list[str]:
        """A device for each cell that runs at a time on this machine."""
        found = ["cpu"] if self.engine == "ray" else devices(self.device)
        return for_workers(found, self.jobs)

    @property
    def threads_each(self) -> int:
        """Of each cell on this machine."""
        return self.threads or threads_of_each(len(self.workers))

    def check_training(self, training: dict[str, Scalar]) -> None:
        """Refuse now what the devices could not do later. A cluster may have any, unless one was chosen."""
        on_cluster = "cpu" if self.device == "cpu" else "cuda"
        numerics = Numerics(**training)  # type: ignore[arg-type]
        numerics.check(on_cluster if self.engine == "ray" else self.workers[0])
        ranks = numerics.ranks
        if self.engine == "local":
            found = devices(self.device)
            most, each = (cores(), "core") if found == ["cpu"] else (len(found), "GPU")
            require(ranks <= most, "ranks", ranks, f"at most {most}", f"one for each {each} of this machine")

    @property
    def scratch_folder(self) -> Path:
        """The folder of checkpoints and logs, where something is run."""
        assert self.scratch is not None
        return self.scratch

    @property
    def logs(self) -> str:
        """Where tracebacks go."""
        return "Ray's logs of its workers" if self.engine == "ray" else f"{self.scratch}/worker-*.log"

    def build(self) -> Cluster | Local:
        """The engine."""
        # Absolute: workers, and other machines, may stand elsewhere.
        root = named_root(self.data)
        place = Context(data_root=root.absolute() if root else None, scratch=self.scratch_folder.absolute())
        if self.engine == "ray":
            return Cluster(place, self.device, self.address, self.threads, self.jobs or 1)
        return Local(place, self.workers, self.threads, self.scratch_folder)


def training_settings(precision: str | None, ranks: int | None) -> dict[str, Scalar]:
    """What is added to training cells: nothing for the defaults, so that they stay the cells that they were."""
    chosen = Numerics(precision or "fp32", ranks=1 if ranks is None else ranks)
    chosen.check("cuda")
    given: dict[str, Scalar] = {"precision": chosen.precision, "ranks": chosen.ranks}
    return {name: value for name, value in given.items() if value != getattr(Numerics(), name)}
