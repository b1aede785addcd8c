"""Static INT8 graphs: scales from calibration, layers chosen by measurement, and the gate before publication."""
