"""Controlled comparisons: other mixers in the same model, and a race between whole models.

    mixers              the rivals of the Fourier layer
    linear_recurrences  what two of them compute
    race_contenders     who takes part in the race, at one parameter budget
    race_config         what a race is
    race_run            one run of it
    race                all of them: timed, run, resumed, recorded
    race_results        standings, curves, a table
"""
