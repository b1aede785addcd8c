"""What can stop a training; the command prints the message and exits with 1, with 2 where the config is at fault.

TrainingError
├── ConfigInvalid        a knob is unknown, misspelt, out of range or does not fit another
├── DataMissing          a folder, shard or feature file is missing, unreadable or holds nothing to train on
├── CheckpointMismatch   the run directory holds a run of another config, or weights that do not fit the net
└── TrainingDiverged     losses or weights are no longer finite
"""

from engines.errors import RetouchError


class TrainingError(RetouchError):
    """A training cannot go on."""


class ConfigInvalid(TrainingError):
    """A knob is unknown, misspelt, out of range or does not fit another."""

    exit_status = 2


class DataMissing(TrainingError):
    """A folder, shard or feature file is missing, unreadable or holds nothing to train on."""


class CheckpointMismatch(TrainingError):
    """The run directory holds a run of another config, or weights that do not fit the net."""


class TrainingDiverged(TrainingError):
    """Losses or weights are no longer finite; what was saved before is kept."""
