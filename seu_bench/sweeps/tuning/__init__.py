"""Tuning: hyper-parameters chosen on validation images of other seeds' streams, by the jobs of sweeps.

============  ==================================================================
:mod:`.space`   values and ranges of hyper-parameters
:mod:`.spec`    what a tuning is asked for: its fields, method and files
:mod:`.search`  trials: from a sampler to jobs, and from their records to scores
:mod:`.choice`  the trial that is chosen, and the tuned file
============  ==================================================================
"""
