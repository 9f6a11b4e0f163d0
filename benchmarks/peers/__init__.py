"""What a user's framework ships, on the same work as Killick, in one run.

The peers are installed into an environment of their own (`make bench` does it), because their
dependencies are many and none of them is Killick's. One file for each framework; `contestants`
lists all of them; `work` is what they do; `tables` and `plots` show it.
"""
