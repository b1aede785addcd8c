"""What travels between the stages. Stages know these and not each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.flow import ANYONE, Flow

ImageFormat = Literal["png", "jpeg", "webp"]
MaskMode = Literal["white", "black", "alpha"]
Strategy = Literal["auto", "crop", "whole"]
CacheOutcome = Literal["hit", "miss", "coalesced"]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]
Bool2D = NDArray[np.bool_]


class Size(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.width}×{self.height}"


class Box(NamedTuple):
    """A half-open rectangle in a picture: rows top..bottom, columns left..right."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def size(self) -> Size:
        return Size(self.bottom - self.top, self.right - self.left)


class Brightness(NamedTuple):
    """The range of a mask's luminance, and from where on a pixel counts as white."""

    darkest: int
    brightest: int
    half: int

    @property
    def most(self) -> int:
        """What a pixel can have at most: 255, or 65,535 in a file of 16 bits."""
        return 2 * self.half - 1


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded image, upright (EXIF orientation applied), ready to be encoded again without loss.

    pixels: H×W×C, C = 1 (grey) or 3 (RGB), uint8 or uint16 (16-bit PNG).
    alpha: H×W of the same dtype, or None.
    icc: the colour profile of the file, or None.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    icc: bytes | None = None

    @property
    def size(self) -> Size:
        return Size(*self.pixels.shape[:2])


@dataclass(frozen=True, slots=True)
class Crop:
    """Where one tile comes from and goes back to: `box` of the picture, scaled and padded into `tile`.

    The box, scaled to `scaled` (equal to the box's size where nothing is scaled), lies at the tile's top left, or
    `below` and `right_of` it by that many pixels; the rest of the tile is reflected padding.

    hole: the pixels of the box that this crop fills, H×W of the box; None means all masked ones. Boxes of several
        crops may overlap, their holes never do.
    """

    box: Box
    scaled: Size
    tile: Size
    hole: Bool2D | None = field(default=None, compare=False, repr=False)
    below: int = 0
    right_of: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a batch, before it is a float: uint8 all the way to the device.

    arrays: by tensor name. `image` uint8 H×W×C; `mask` uint8 H×W, 1 = fill; `latent` float32 Z, or S×Z;
        `label` uint8 H×W; `instance` int32 H×W; `reference` float32 C×H×W. H×W = `tile`.
    samples: S, how many tiles come back; more than 1 only for models that take several latents a row.
    """

    tile: Size
    arrays: Mapping[str, NDArray[Any]]
    samples: int = 1
    into: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)
    """Where its tile is to be written, of the tile's shape; None where the device may choose."""
    locked: bool = False
    """Whether `arrays` and `into` are page-locked: a GPU copies from and to them directly."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What the device worker gives back for one sample."""

    tile: NDArray[np.uint8]
    """H×W×C of the sample's tile: the generator's output clamped to [0, 1], times 255, rounded.

    S×H×W×C where the model takes several latents a row.
    """
    batch_size: int
    queue_s: float
    infer_s: float
    device_s: float
    """Of the device's time: less than `infer_s` where others were computed beside it."""
    batch: str = ""
    """The `traceparent` of its batch's span; empty where nobody traces."""


@dataclass(slots=True)
class Timings:
    """Seconds spent in each stage of one request; names as in the Server-Timing header."""

    stages: dict[str, float] = field(default_factory=dict)
    on_ended: Callable[[str, float], None] | None = None
    """Told of each stage and its seconds as it ends, on its thread."""

    def ended(self, stage: str, seconds: float) -> None:
        """A stage ended just now."""
        self.add(stage, seconds)
        if self.on_ended is not None:
            self.on_ended(stage, seconds)

    def add(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    def header(self) -> str:
        """The value of a Server-Timing header, in milliseconds (W3C Server Timing)."""
        return ", ".join(f"{name};dur={seconds * 1e3:.3f}" for name, seconds in self.stages.items())


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, and until when."""

    request_id: str
    received_at: float
    """On the server's monotonic clock, in seconds."""
    deadline: float
    """The same clock: after it nobody needs the answer."""
    flow: Flow = ANYONE
    """Whose turn it takes in the queue."""
    on_begun: Callable[[], None] | None = None
    """Told, on the event loop, when the first batch with a sample of this call is formed."""
    traceparent: str = ""
    """Of its span; empty where it is not traced."""
    own_deadline: bool = False
    """Whether the client named the deadline itself."""
    on_large: Callable[[], None] | None = None
    """Told, on the event loop, that its pictures are large."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One finished file."""

    body: bytes
    result_id: str | None
    """Where it is stored; None when it was not saved."""

    @property
    def url(self) -> str | None:
        """The path of the stored result; None when it was not saved."""
        return f"/v1/results/{self.result_id}" if self.result_id else None


@dataclass(frozen=True, slots=True)
class Reply:
    """The finished pictures of one request, and all that is said about them."""

    pictures: tuple[Encoded, ...]
    """At least one; several where several samples were asked for, in the order of their index."""
    media_type: str
    size: Size
    model: str
    engine: str
    batch_size: int
    coverage: float | None
    seed: int | None
    """What the latents were drawn from; None for models without."""
    timings: Timings
    cache: CacheOutcome | None = None
    """Where it came from, if requests are compared."""
