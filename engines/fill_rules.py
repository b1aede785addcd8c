"""Rules of the strategy `auto` that were measured for a model and stored in its manifest. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FillRule(BaseModel):
    """One rule: the way to fill masks within all of its bounds; a bound of null has no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    longest_side: int | None = Field(default=None, ge=1, description="the picture's longer side, pixels, at most")
    radius: int | None = Field(
        default=None, ge=16, description="radius of the largest circle in the mask, pixels of the picture, at most"
    )
    strategy: Literal["whole", "crop"]
    max_hole_radius: int | None = Field(
        default=None, ge=16, description="of crops: thicker holes are scaled down to this radius, in tile pixels"
    )

    def holds(self, longest_side: int, radius: float) -> bool:
        """Return whether the picture's longer side and the thickest hole's radius, in pixels, are within the bounds."""
        return (self.longest_side is None or longest_side <= self.longest_side) and (
            self.radius is None or radius <= self.radius
        )


class FillRules(BaseModel):
    """The rules of a model. The first rule that holds decides; if none holds, the service's default applies.

    measured: the pictures, the measure and the date of the sweep.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    measured: str
    rules: tuple[FillRule, ...] = Field(min_length=1)

    def asks_for_radius(self, longest_side: int) -> bool:
        """Return whether the first rule that can hold for a picture of that longer side has a bound on the radius."""
        first = next((rule for rule in self.rules if rule.holds(longest_side, 0)), None)
        return first is not None and first.radius is not None

    def decide(self, longest_side: int, radius: float) -> FillRule | None:
        """Return the rule for a picture's longer side and its thickest hole's radius, in pixels; None if none holds."""
        return next((rule for rule in self.rules if rule.holds(longest_side, radius)), None)
