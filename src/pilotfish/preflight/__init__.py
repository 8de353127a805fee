"""Before anything is spent: what a recipe will cost (`estimate`), and whether it can run here (`doctor`)."""
