"""sao: representations learnt by the discriminator of a GAN, without labels and without augmented views."""

__version__ = "0.1.0"
