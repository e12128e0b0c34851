"""What a folder of images holds: which images are alike, and which are there more than once."""
