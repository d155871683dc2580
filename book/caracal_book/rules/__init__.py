"""What checks the notebooks and the ledger, without Sphinx.  A notebook here is what `nbformat` reads::

    cells           a notebook's cells by kind, code as syntax trees
    printed_values  the `name = number` lines that cells print
    prose_numbers   the numbers in the text, each compared with a printed value
    ingredients     the files that a notebook is made of
    ledger          the claims of the paper, read and checked
    figure_rules    figures, captions, alternative texts
    notebook_rules  all other rules
    drawings        drawings in the colours of both themes; what is hard to see in them

`python -m caracal_book.rules` applies all of them, to all notebooks or to those that are named.
"""
