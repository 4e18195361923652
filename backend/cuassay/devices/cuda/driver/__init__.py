"""The driver and nothing of ours: its status codes, devices, contexts and libraries."""
