"""The INT8 form of an inpainting model: calibrated, its layers chosen, and gated on pictures with holes, as served."""
