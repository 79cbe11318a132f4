"""What the larger verbs do between reading their arguments (`cli`) and the mechanism below."""
