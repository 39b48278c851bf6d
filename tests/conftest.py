"""Fixtures that more than one test file uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from elvis.models import Matcher
from examples import MATCHERS


@pytest.fixture(scope="session")
def oracles() -> Path:
    """Parameters, inputs and answers of the published implementations."""
    return Path(__file__).parent / "oracles"


@pytest.fixture(params=MATCHERS)
def matcher(request: pytest.FixtureRequest) -> Matcher:
    """Every model that takes unequal numbers of descriptors."""
    return MATCHERS[request.param]()
