"""Find the same thing in a pile of pictures."""

from elvis.values import Descriptors, Explanation, Hit

__all__ = ["Descriptors", "Explanation", "Hit"]
__version__ = "0.1.0"
