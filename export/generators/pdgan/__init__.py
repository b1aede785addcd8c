"""PD-GAN."""
