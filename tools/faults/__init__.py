"""Faults done on purpose to what the package writes and reads, and whether its promises hold then.

    bad_input     command lines and files that cannot be: exit status 2 and one line
    bits          bits flipped in files of shards, checkpoints and models: found when they are read
    interrupted   runs that are killed, or whose disk fills up: started again they end as if nothing had been

The tests call these functions in small, `tools/fault_runs.py` at full size.  All draws come from a seed.
"""
