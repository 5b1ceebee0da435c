"""Shell completion: what a shell offers when the tab key is pressed. Nothing here imports torch.

- ``command``: ``seu-bench completion SHELL``, which prints the script of a shell
- ``shells``: bash, zsh and fish: their scripts, and how each hands over the line
- ``values``: what may stand in an option or argument: names, protocols, devices, metrics
- ``option_keys``: keys and values of ``-o``
- ``fields``: which of these each option of a request has
- ``run_names``: ids of runs, the newest first
"""
