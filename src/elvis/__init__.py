"""Find the same thing in a pile of pictures."""

from elvis.errors import ElvisError
from elvis.models import load_model
from elvis.values import Descriptors, Explanation, Hit

__all__ = ["Descriptors", "ElvisError", "Explanation", "Hit", "load_model"]
__version__ = "0.1.0"
