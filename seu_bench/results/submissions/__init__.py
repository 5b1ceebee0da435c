"""A shared leaderboard without a server: a folder of runs that several people submit, and what is checked of them.

==================  ==============================================================================
:mod:`.manifest`    who submits which runs, with their digests, as a file
:mod:`.submitting`  runs copied into a shared folder
:mod:`.texts`       texts that could do harm where they are shown
:mod:`.checking`    what is checked before a submission is accepted, without models and without data
==================  ==============================================================================
"""
