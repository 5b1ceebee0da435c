"""Deep generative replay."""
