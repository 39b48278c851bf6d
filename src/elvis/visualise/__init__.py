"""Pictures of a match: each function returns a matplotlib `Figure` and touches no global state.

`save` or `to_png` turn a figure into a file or bytes. All colours are told apart by colour-blind eyes too: what is
strong or ignored is bright, on scales whose lightness only ever rises.
"""

from elvis.visualise.canvas import save, to_png
from elvis.visualise.heat import dustbin_maps, matrices
from elvis.visualise.lines import Match, correspondences, strongest_matches
from elvis.visualise.sheets import contact_sheet, match_sheet

__all__ = [
    "Match",
    "contact_sheet",
    "correspondences",
    "dustbin_maps",
    "match_sheet",
    "matrices",
    "save",
    "strongest_matches",
    "to_png",
]
