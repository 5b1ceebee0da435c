"""Learning with a pretrained network that stays as it is, by small units between its layers."""
