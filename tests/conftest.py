"""Fixtures that more than one test file uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elvis.models import Matcher
from examples import MATCHERS, draw_collection
from tiny_checkpoints import make_checkpoint


@pytest.fixture(scope="session")
def oracles() -> Path:
    """Parameters, inputs and answers of the published implementations."""
    return Path(__file__).parent / "oracles"


@pytest.fixture(params=MATCHERS)
def matcher(request: pytest.FixtureRequest) -> Matcher:
    """Every model that takes unequal numbers of descriptors."""
    return MATCHERS[request.param]()


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a folder with a random checkpoint of a family, made once."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            made[family] = make_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family]

    return make


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos/` of eight things, `queries/` of three of them, and `facts.csv`."""
    return draw_collection(tmp_path_factory.mktemp("collection"))
