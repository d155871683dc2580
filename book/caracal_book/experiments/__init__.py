"""Controlled comparisons: other mixers in the same model, on tasks that tell them apart; ablations; a race of models::

    mixer               what a rival of the Fourier layer is
    mixers              the rivals, by name
    full_attention      one of them
    linear_recurrences  what two of them compute
    task                what a synthetic task is
    tasks, mirror       the tasks
    learner             a small model around any mixers, and how it learns a task
    surgery             ablations of a trained model
    ablated             its losses under each of them, and beyond its length
    trials              short runs of `train`, in one table
    grid                runs in a folder: each once, resumed, recorded
    sweep               the grid of contenders on tasks, and how its runs are read
    race_results        standings and a table of language models
    language_grid       language models at several learning rates and with several seeds
    forms               the grid of Fourier layers that are changed in one thing
    race_contenders     the contenders of the race, at one parameter budget
    race                the grid of all of them

`python -m caracal_book` runs the grids, and `surgery` on any trained model.
"""
