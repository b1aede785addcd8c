"""The errors of an export; the command prints the message and exits with status 1, or 2 for an option.

ExportError
├── CheckpointRefused    the file cannot be read, cannot be read safely, or holds NaN or infinity
├── LayoutMismatch       keys or shapes are not those of the generator; the message names them
├── OptionInvalid        an unknown generator, option or value; the message names the known ones
├── SamplesMissing       there are no pictures to compare the graphs on
├── GraphInvalid         the exporter wrote a graph that breaks the tensor contract
├── ParityFailed         a graph's outputs differ too much from torch; nothing was published
├── GraphRefused         a foreign graph is hostile or damaged, does not fit the contract, or is not what was declared
├── CalibrationInvalid   the pictures to calibrate on are too few, or one of them cannot be read
└── QuantisationRefused  in INT8 the fills differ too much from FP32; the message names the layers that cost most
"""

from engines.errors import RetouchError


class ExportError(RetouchError):
    """A checkpoint could not be exported; this class itself is raised if the output cannot be written."""


class CheckpointRefused(ExportError):
    """The file cannot be read, cannot be read safely, or holds NaN or infinity."""


class LayoutMismatch(ExportError):
    """Keys or shapes are not those of the generator; the message names them."""


class OptionInvalid(ExportError):
    """An unknown generator, option or value; the message names the known ones."""

    exit_status = 2


class SamplesMissing(ExportError):
    """There are no pictures to compare the graphs on."""


class GraphInvalid(ExportError):
    """The exporter wrote a graph that breaks the tensor contract."""


class ParityFailed(ExportError):
    """A graph's outputs differ too much from torch; nothing was published."""


class GraphRefused(ExportError):
    """A foreign graph is hostile or damaged, does not fit the contract, or is not what was declared."""


class CalibrationInvalid(ExportError):
    """The pictures to calibrate on are too few, or one of them cannot be read."""


class QuantisationRefused(ExportError):
    """In INT8 the fills differ too much from FP32; the message names the layers that cost most."""
