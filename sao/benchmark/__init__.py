"""How fast a step is, what it spends its time on, and how near it comes to what the machine can do."""
