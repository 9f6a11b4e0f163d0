"""What can be asked of the server, one module for each kind of question."""
