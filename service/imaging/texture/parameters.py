"""The parameters of the texture stage, each with its reason.

All were chosen on 16 to 32 pictures of BSDS500's test part, by VGG distance, KID and the eye; none on bsds500_val,
which the figures of record are of.
"""

from __future__ import annotations

from dataclasses import dataclass

REACH = 2
"""Pixels from a patch's centre to its edge: patches of 5². Those of 7² copy larger parts, and their seams are seen."""


@dataclass(frozen=True)
class Parameters:
    """Choices of the stage. Lengths are in pixels of the full size; pictures have values in [0, 1]."""

    low_share: float = 0.5
    """Share of the fill's low frequencies that is kept, not copied: brightness stays where the net put it. More keeps
    more of the net's blur, less lets patches bring the light of the place they come from."""
    low_sigma: float = 5.0
    """The Gaussian of these low frequencies is wider than a patch, so that texture is what is left to copy."""
    guide_weight: float = 1.0
    """The weight of the guide against the colours of the patch: the net decides which texture belongs where."""
    guide_sigma: float = 3.0
    """The Gaussian of the guide is wider than the net's ripple of 4 pixels, which is not to be matched."""
    contrast_weight: float = 2.0
    """The weight of local contrast in the guide: smooth places get smooth patches, busy ones busy patches."""
    contrast_sigma: float = 3.0
    """The Gaussian window in which local contrast is taken."""
    contrast_gain: float = 1.2
    """Contrast looked for, in that of the fill: nets draw flatter than photographs are."""
    trust_decay: float = 0.9
    """The trust in a filled pixel falls by this factor a pixel from the hole's edge, which is known best."""
    trust_least: float = 0.15
    """The trust in the middle of a large hole, as nothing else is there to match."""
    coherence: float = 2.0
    """Raises the distance of a source by up to this many times itself, the more neighbours it does not continue: larger
    parts are copied whole, in place of the patch that fits best at every pixel."""
    coherence_flat: float = 0.001
    """The same, added: where all distances are near 0, as in a sky, a factor alone decides nothing."""
    first_sweeps: int = 4
    """Sweeps of the first search, at half size, from random matches in the whole picture."""
    rounds: int = 3
    """Searches and votes at full size; the first one sees the net's fill."""
    sweeps: int = 2
    """Sweeps of the search in each round: one from the top, one from the bottom."""
    reach: int = 8
    """Largest step of the random search at full size: the match at half size is nearly right."""
    vote_decay: float = 0.35
    """How fast a patch's vote falls with the square of the distance from its centre: the mean of all votes is blurred,
    that of the central ones is not."""
