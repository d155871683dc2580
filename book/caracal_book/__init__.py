"""What the book *Caracal from Scratch* needs and the model does not::

    viz           the figures: what they show, computed; a still; a script that moves it
    exercises     the checkers of the exercises
    experiments   controlled comparisons: other mixers in the same model, ablations, a race of models
    numbers       what the paper measured, and what a model must cost
    fineweb       a slice of FineWeb, to train on without a network
    records       a run as one JSON file: with which code, where, on what, and what came out
    runs          the recorded runs that pages show
    measured      the text that a loss is measured on, and bits per byte
    ngrams        n-gram models, which a language model has to beat
    rivals        the paper's baselines, from `transformers`, and its variants of Caracal
    benchmark     speed and memory, as ratios
    web_export    a model as scripts for a page, in eight bits
    rules         what checks the notebooks
    commands      the command line: benchmark, count, export-web, forms, learn, race, record, roofline, surgery

It imports `caracal_min`, and is never imported by it.
"""
