"""The report of an evaluation, as files that need nobody: see `main`, and `inspect_log` for inspect_ai."""
