"""The report: one HTML page that needs no network, and its figures, made from records alone.

``writing`` tells the story: ``source`` reads what is shown, ``plan`` chooses the figures, ``page`` fills the template.
Figures are made by the modules called ``draw_...``; ``canvas`` is the only one that knows how matplotlib is set up.
"""
