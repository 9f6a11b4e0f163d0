"""One module for each group of commands; `killick.cli.argv` loads the one that is run."""
