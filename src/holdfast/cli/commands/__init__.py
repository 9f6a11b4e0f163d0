"""One module for each group of commands; `holdfast.cli.app` loads the one that is run."""
