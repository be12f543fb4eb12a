"""Everything that is run on this repository: `nox` checks it, `nox -l` lists the rest.

Arguments after `--` go to the tool: `nox -s tests -- -k basis -n 0`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_venv = "yes"
# pip, not uv: constraints.txt was resolved by pip, and decides which torch build is taken.
nox.options.default_venv_backend = "virtualenv"

#: Two workers with one thread each: small tensors gain nothing from threads inside an operation.
TWO_WORKERS = ("-n", "2")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def install(session: nox.Session, *what: str) -> None:
    """Install into the session's environment, at the versions of constraints.txt."""
    session.install("-c", "constraints.txt", *what)


@nox.session
def lint(session: nox.Session) -> None:
    """Check Ruff's rules and format, and the direction of imports; `-- --fix` repairs what it can."""
    install(session, "ruff")
    session.run("ruff", "check", ".", *session.posargs)
    # `--fix` is asked of the formatter by leaving its `--check` out.
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]), ".")
    session.run("python", "tests/architecture.py")


@nox.session
def types(session: nox.Session) -> None:
    """Run Mypy in strict mode on sesn, harness and this file."""
    install(session, "-e", ".[dev]")
    session.run("mypy", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the quick tests; `-m` or `-n` after `--` replaces the default."""
    install(session, "-e", ".[harness,cluster,test]")
    session.run("pytest", "-m", "not slow", *TWO_WORKERS, *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def thorough(session: nox.Session) -> None:
    """Run every test, the slow ones too, with many more examples per property."""
    install(session, "-e", ".[harness,cluster,test]")
    env = {**ONE_THREAD, "HYPOTHESIS_PROFILE": "thorough"}
    session.run("pytest", *TWO_WORKERS, *session.posargs, env=env)


@nox.session(default=False)
def oldest(session: nox.Session) -> None:
    """Run the library's quick tests on the oldest torch and numpy that are promised (3 GB on Linux)."""
    promised = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    # Without constraints.txt, whose versions want a newer numpy.
    session.install(*(each.replace(">=", "==") for each in promised), "-e", ".[harness,test]")
    # The experiments run from a clone, with the versions of constraints.txt.
    experiments = re.compile(r"^\s*(import|from) (harness|synthetic)", re.MULTILINE)
    files = [str(each) for each in sorted(Path("tests").glob("test_*.py")) if not experiments.search(each.read_text())]
    session.run("pytest", "-m", "not slow", *TWO_WORKERS, *(session.posargs or files), env=ONE_THREAD)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build sdist and wheel into dist/, check them, and try the wheel in an empty environment."""
    install(session, "build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")  # the wheel from the sdist, so that both are tried
    built = sorted(Path("dist").resolve().iterdir())
    session.run("twine", "check", "--strict", *map(str, built))
    wheel, empty = next(each for each in built if each.suffix == ".whl"), Path(session.create_tmp()).resolve() / "empty"
    session.run("python", "-m", "venv", "--clear", str(empty))
    python = str(empty / "bin" / "python")
    trial = shutil.copy("tests/installed_wheel.py", empty)  # where nothing of the clone is in reach
    for extra, more in (("", ["pytest"]), ("[tools]", [])):
        pip = (python, "-m", "pip", "install", "-c", "constraints.txt", f"{wheel}{extra}", *more)
        session.run(*pip, external=True)
        with session.chdir(empty):
            command = (python, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", trial)
            session.run(*command, *session.posargs, external=True, env=ONE_THREAD)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/docs; a warning or a broken link is an error."""
    install(session, "-e", ".[harness,docs]")
    shutil.rmtree("build/docs", ignore_errors=True)
    session.run(
        "sphinx-build", "-W", "--keep-going", "-n", "-q", *session.posargs, "docs", "build/docs", env=ONE_THREAD
    )
    session.run("python", "tests/site_check.py", "build/docs")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time the layers against the textbook form and a convolution; `-- choices` and `-- methods` time others."""
    install(session, "-e", ".[harness]")
    session.run("python", "-m", "harness.bench", *session.posargs)


@nox.session(default=False)
def zoo(session: nox.Session) -> None:
    """Check networks of timm, transformers, monai, escnn and others as a new user would; write docs/zoo.md."""
    others = ("timm", "torchvision", "transformers", "monai", "segmentation-models-pytorch", "kornia")
    install(session, "-e", ".[tools]", *others, "requests")
    # Of what escnn asks for, py3nj needs a Fortran compiler and can be left out, and lie_learn is built for numpy 1.
    session.install("--no-deps", "-c", "constraints.txt", "escnn", "lie_learn", "pymanopt", "autograd")
    session.install("--no-deps", "numpy==1.26.4")
    session.run("python", "tests/zoo_packages.py", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def reproduce(session: nox.Session) -> None:
    """Run a short version of every experiment on embedded data and draw the report."""
    install(session, "-e", ".[harness]")
    session.run("sesn", "reproduce", *session.posargs)


@nox.session(default=False)
def report(session: nox.Session) -> None:
    """Fail if the committed report is not what the committed rows give; `-- --only figure-2` redraws one figure."""
    install(session, "-e", ".[harness]")
    session.run("sesn", "report", *(session.posargs or ("--check",)))


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Open the report's page in Debian's chromium: errors, requests, sorting, phone, dark, print."""
    install(session, "-e", ".[harness,test,browser]")
    if shutil.which("chromium") is None:
        session.run("apt-get", "update", external=True)
        session.run("apt-get", "install", "-y", "--no-install-recommends", "chromium", external=True)
    session.run("pytest", "tests/test_page.py", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def kernels(session: nox.Session) -> None:
    """Test the fused kernels without a GPU: in Triton's interpreter, and compiled for sm_80 and sm_90 (290 MB more)."""
    install(session, "-e", ".[harness,test,gpu]")
    for interpret in ("1", "0"):
        env = {**ONE_THREAD, "TRITON_INTERPRET": interpret, "TRITON_DEFAULT_FP_FUSION": "1"}
        session.run("pytest", "-m", "not slow", *TWO_WORKERS, "tests/kernels", *session.posargs, env=env)


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Test and time everything on this machine's GPU; `-- --device cpu` rehearses it (3 GB on Linux)."""
    # Without constraints.txt: torch's build for CUDA asks for a Triton of its own.
    session.install("-e", ".[harness,test,gpu]")
    session.run("sesn", "gpu", *session.posargs)


@nox.session(default=False)
def train(session: nox.Session) -> None:
    """Train on MNIST-scale; give methods, budget and data after `--`."""
    install(session, "-e", ".[harness]")
    session.run("sesn", "run", "mnist-scale", *session.posargs)
