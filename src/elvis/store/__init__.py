"""The store: pictures' global vectors and packed descriptors on disk, safe against crashes and damage."""

from elvis.store.card import SCHEMA, IndexCard
from elvis.store.fetching import Fetched
from elvis.store.index import Index
from elvis.store.maintenance import VerifyReport
from elvis.store.nearest import Neighbour
from elvis.store.records import Record, Stamp

__all__ = ["SCHEMA", "Fetched", "Index", "IndexCard", "Neighbour", "Record", "Stamp", "VerifyReport"]
