"""What the book *Caracal from Scratch* needs and the model does not::

    viz           the figures: what they show, computed; a still; a script that moves it
    exercises     the checkers of the exercises
    experiments   controlled comparisons: other mixers in the same model, ablations, a race of models
    numbers       what the paper measured, and what a model must cost
    fineweb       a slice of FineWeb, to train on without a network
    runs          the recorded runs that pages show
    rules         what checks the notebooks
    commands      the command line: learn, surgery, forms, race, count, roofline

It imports `caracal_min`, and is never imported by it.
"""
