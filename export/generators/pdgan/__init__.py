"""The PD-GAN family."""
