"""The viewer: a run's episodes as pages that a browser reads, served on loopback (`app`) or as a folder (`export`)."""
