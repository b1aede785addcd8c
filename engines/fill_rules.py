"""What strategy `auto` shows a generator: rules that were measured for this model, in its manifest. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FillRule(BaseModel):
    """One rule: what to do with masks that lie within all of its bounds; a bound that is null holds for any."""

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
        """Whether both, in pixels of the picture, are within the bounds."""
        return (self.longest_side is None or longest_side <= self.longest_side) and (
            self.radius is None or radius <= self.radius
        )


class FillRules(BaseModel):
    """The rules of a model, the first that holds decides; where none does, the service's default stands.

    measured: on which pictures, by what, when.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    measured: str
    rules: tuple[FillRule, ...] = Field(min_length=1)

    def asks_for_radius(self, longest_side: int) -> bool:
        """Whether the first rule that may hold for pictures of that longer side depends on the mask."""
        first = next((rule for rule in self.rules if rule.holds(longest_side, 0)), None)
        return first is not None and first.radius is not None

    def decide(self, longest_side: int, radius: float) -> FillRule | None:
        """The rule for a picture and its thickest hole, in pixels of the picture; None where none holds."""
        return next((rule for rule in self.rules if rule.holds(longest_side, radius)), None)
