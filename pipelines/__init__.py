"""The pipeline: its graph, its compiled form, and the run of it on this machine."""
