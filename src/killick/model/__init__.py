"""Everything that can be recorded: values, no I/O, no clock, no ids of their own making."""
