"""LaMa: large-mask inpainting with Fourier convolutions."""
