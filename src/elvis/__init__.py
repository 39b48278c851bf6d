"""Find the same thing in a pile of pictures.

The values and models are here at once; what needs a store or opens pictures is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elvis.errors import ElvisError
from elvis.models import load_model
from elvis.values import Descriptors, Explanation, Hit

if TYPE_CHECKING:
    from elvis.building import index_pictures
    from elvis.extract import ExtractionSettings, Extractor
    from elvis.search import Searcher, SearchResult
    from elvis.store import Index

__all__ = [
    "Descriptors",
    "ElvisError",
    "Explanation",
    "ExtractionSettings",
    "Extractor",
    "Hit",
    "Index",
    "SearchResult",
    "Searcher",
    "index_pictures",
    "load_model",
]
__version__ = "0.1.0"

_LATER = {
    "ExtractionSettings": "elvis.extract",
    "Extractor": "elvis.extract",
    "Index": "elvis.store",
    "SearchResult": "elvis.search",
    "Searcher": "elvis.search",
    "index_pictures": "elvis.building",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'elvis' has no attribute {name!r}")
