"""From a user's own rows to a recipe: which column is what, what judges the answers, what is held out."""
