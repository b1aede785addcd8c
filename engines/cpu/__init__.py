"""OpenVINO on the CPU, and the interface of engines with lanes (independent streams)."""
