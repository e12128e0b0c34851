"""A grid of options, each combination with each seed an ordinary run, and one table of all of them."""
