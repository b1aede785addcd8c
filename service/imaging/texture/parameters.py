"""The parameters of the texture stage, each with its reason.

All were chosen on 16 to 60 pictures of BSDS500's test set, by VGG distance, KID and by eye; none on its validation set,
which the published figures are measured on.
"""

from __future__ import annotations

from dataclasses import dataclass

REACH = 2
"""Pixels from a patch's centre to its edge: patches of 5². Patches of 7² copy larger parts with visible seams."""


@dataclass(frozen=True)
class Parameters:
    """Choices of the stage. Lengths are in pixels of the full size; pictures have values in [0, 1]."""

    low_share: float = 0.5
    """Share of the fill's low frequencies that is kept, so that brightness stays where the net put it. A larger share
    keeps more of the net's blur; with a smaller one patches bring the brightness of the place they come from."""
    low_sigma: float = 8.0
    """Sigma of the Gaussian that gives the low frequencies; wider than a patch, so that texture is left to copy."""
    guide_weight: float = 1.0
    """The weight of the guide against the colours of the patch: the net decides which texture belongs where."""
    guide_sigma: float = 3.0
    """Sigma of the guide's Gaussian; wide enough to remove the net's ripple of 4 pixels, which must not be matched."""
    contrast_weight: float = 2.0
    """Weight of local contrast in the guide, so that smooth places get smooth patches and busy ones busy patches."""
    contrast_sigma: float = 3.0
    """Sigma of the Gaussian window in which local contrast is taken."""
    contrast_gain: float = 1.2
    """Factor on the fill's contrast before it is matched, because nets draw less contrast than photographs have."""
    nearness: float = 0.4
    """Weight of the distance between a source and its target, in units of 256 pixels, in the guide: what lies nearby is
    more often of the same thing. A larger weight leaves too few sources to choose from in large holes."""
    trust_decay: float = 0.9
    """Factor by which the trust in a filled pixel falls with each pixel from the hole's edge."""
    trust_least: float = 0.15
    """Lower limit of the trust, for the middle of large holes, where there is nothing else to match."""
    coherence: float = 2.0
    """Penalty, as a factor on a source's distance, for neighbours that it does not continue: larger parts are copied
    whole, instead of the patch that fits best at every pixel."""
    coherence_flat: float = 0.001
    """The same penalty as a term: where all distances are near 0, as in a sky, a factor has no effect."""
    crowding: float = 0.25
    """Penalty, as a factor on a source's distance, for sources that are matched more often than others: without it the
    nearest ones fill deep holes again and again, as stripes and tiles."""
    crowding_flat: float = 0.0005
    """The same penalty as a term, for places where all distances are near 0."""
    first_sweeps: int = 4
    """Sweeps of the first search, at half size, from random matches in the whole picture."""
    half_rounds: int = 2
    """Searches and votes at half size. The first one sees the net's fill, the second one copied pixels."""
    rounds: int = 2
    """Searches and votes at full size, after a vote of the matches from half size."""
    sweeps: int = 2
    """Sweeps of the search in each round: one from the top, one from the bottom."""
    reach: int = 8
    """Largest step of the random search at full size: the match at half size is nearly right."""
    vote_decay: float = 0.8
    """Decay of a patch's vote with the squared distance from its centre: equal votes would blur the picture.
    The blend removes the jagged borders that a fast decay would leave."""
    vote_pull: float = 0.1
    """Weight of the voted colours against the voted differences of neighbours, when votes are blended. A large one
    keeps the edges between patches; a smaller one gains nothing, and takes more sweeps to solve."""
    outline: float = 0.15
    """How far the colours of neighbours may be from their voted difference, in RGB of [0, 1], to be blended. Without it
    an outline that no patch has, as between copied sky and copied ground, becomes a haze."""
    seed: int = 0
    """Seed of the random search."""
