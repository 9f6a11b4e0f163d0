"""What a person sees and what a model is sent: pure functions of entries, computed when read."""
