"""Learn to Grow."""
