"""The views, pure functions of entries: what a person sees, what a model is sent, durations."""
