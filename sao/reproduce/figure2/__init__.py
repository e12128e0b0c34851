"""Figure 2, the double spirals: runs → what they learnt → a number for each panel → the panels."""
