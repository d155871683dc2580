"""Numbers that several pages use: what the paper measured, and what a model must cost::

    table2            Table 2: how well its models answer; what an error of a score is
    table7            Tables 7 and 8: how long six models train by length
    cost              operations and bytes of a model, counted by part
    small_operators   of these, the bytes of norms, sums and the like
    roofline          training steps by the clock, beside their count

Numbers of the paper are read from the files of JSON in this folder.
"""
