"""`killick chat`: what happens in the journal is shown, what is typed becomes turns.

`view` turns what a follower is given into what is shown, and is pure; `screen` is the terminal;
`talk` runs turns, the queue, Stop and approvals; `slash` are the commands that begin with a slash.
"""
