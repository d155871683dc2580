"""Controlled comparisons: other mixers in the same model, on tasks that tell them apart, and surgery on trained models.

The modules: `mixers` (the rivals of the Fourier layer), `linear_recurrences` (what two of them compute).
"""
