"""Controlled comparisons: other mixers in the same model, on tasks that tell them apart; surgery; a race of models.

    mixer               what a rival of the Fourier layer is
    mixers              the rivals, by name
    full_attention      one of them
    linear_recurrences  what two of them compute
    task                what a synthetic task is
    tasks, mirror, mad  the tasks
    learner             a small model around any mixers, and how it learns a task
    sweep               all contenders on all tasks, rates and seeds: run, resumed, recorded, read
    pool                runs at a time
    surgery             a trained model with a part taken out
    forms               the Fourier layer with its gate cut, faded or normed, trained so, then under surgery
    race_contenders     who takes part in the race, at one parameter budget
    race_config         what a race is
    race_run            one run of it
    race                all of them: timed, run, resumed, recorded
    race_results        standings, curves, a table
"""
