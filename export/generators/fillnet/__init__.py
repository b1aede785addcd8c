"""FillNet: our own residual U-Net on a push-pull fill."""
