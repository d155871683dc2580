"""Numbers of the paper that several pages use: `table7`, Tables 7 and 8, how long six models train by length."""
