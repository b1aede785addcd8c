"""The errors of training; the command prints the message and exits with status 1, or 2 if the config is wrong.

TrainingError
├── ConfigInvalid        an option is unknown, misspelt, out of range or contradicts another
├── DataMissing          a folder, shard or feature file is missing, unreadable or has nothing to train on
├── CheckpointMismatch   the run directory has a run of another config, or weights do not fit the net
├── RunBusy              another process trains in the run directory
├── ServerRefused        the server to measure cannot be reached, or answers with an error
└── TrainingDiverged     losses or weights are no longer finite
"""

from engines.errors import RetouchError


class TrainingError(RetouchError):
    """Training cannot start or continue."""


class ConfigInvalid(TrainingError):
    """An option is unknown, misspelt, out of range or contradicts another."""

    exit_status = 2


class DataMissing(TrainingError):
    """A folder, shard or feature file is missing, unreadable or has nothing to train on."""


class CheckpointMismatch(TrainingError):
    """The run directory has a run of another config, or weights do not fit the net."""


class RunBusy(TrainingError):
    """Another process trains in the run directory."""


class ServerRefused(TrainingError):
    """The server to measure cannot be reached, or answers with an error."""


class TrainingDiverged(TrainingError):
    """Losses or weights are no longer finite; earlier checkpoints are kept."""
