"""Controlled comparisons: other mixers in the same model, on tasks that tell them apart; ablations; a race of models::

    mixers        the rivals of the Fourier layer, by name
    tasks         synthetic tasks that tell mixers apart
    learner       a small model around any mixers, how it learns a task, and a grid of such runs
    surgery       ablations of a trained model
    ablated       its losses under each of them, and beyond its length
    grid          runs in a folder: each once, recorded; language models at several rates and with several seeds
    forms         Fourier layers that are changed in one thing, trained so, then ablated
    ladder        one hybrid with different long kernels
    race          whole models of one parameter budget against each other
    own_gates     what another text's gates cost while palindromes are learned
    nine_numbers  kernels of a trained model replaced by a few numbers

`python -m caracal_book` runs the grids, and `surgery` on any trained model.
"""
