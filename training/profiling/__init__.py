"""Where a training step's time goes: operators, power, and how near they come to what the device can do."""
