"""Pictures of a match: each function returns a matplotlib `Figure` and touches no global state.

`save` or `to_png` turn a figure into a file or bytes. All colours are told apart by colour-blind eyes too: what is
strong or ignored is bright, on scales whose lightness only ever rises.
"""

from elvis.visualise.canvas import save, to_png
from elvis.visualise.curves import vote_curve
from elvis.visualise.heat import dustbin_maps, matrices
from elvis.visualise.lines import Match, correspondences, strongest_matches
from elvis.visualise.sheets import contact_sheet, match_sheet
from elvis.visualise.strip import Positive, ranking_strip

__all__ = [
    "Match",
    "Positive",
    "contact_sheet",
    "correspondences",
    "dustbin_maps",
    "match_sheet",
    "matrices",
    "ranking_strip",
    "save",
    "strongest_matches",
    "to_png",
    "vote_curve",
]
