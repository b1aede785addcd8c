"""How good a model is: its fills of held-out pictures against the truth, and what OpenCV makes of the same holes."""
