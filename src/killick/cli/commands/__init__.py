"""One module for each group of commands; `killick.cli.app` loads the one that is run."""
