"""Tables and figures of the paper, each as one command."""
