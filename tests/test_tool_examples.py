"""The examples in the docstrings of the tools are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["check", "profile", "causes"])
def test_the_example_of_a_tool_is_true(name: str) -> None:
    found = doctest.testmod(import_module(f"sesn.tools.{name}"))
    assert found.attempted >= 3
    assert found.failed == 0
