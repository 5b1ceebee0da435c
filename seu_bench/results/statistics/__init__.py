"""Statistics over seeds and over benchmarks: the one place where a difference is called significant.

===================  ====================================================================
:mod:`.samples`      a sample's mean, deviation and interval
:mod:`.differences`  paired differences over seeds: tests, Holm's correction, the verdict
:mod:`.power`        which difference so many pairs would find
:mod:`.ranks`        average ranks over benchmarks: Friedman's test, Holm's post hoc
:mod:`.words`        differences as text
===================  ====================================================================
"""
