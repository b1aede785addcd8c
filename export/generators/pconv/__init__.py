"""The two families of partial-convolution U-Nets."""
