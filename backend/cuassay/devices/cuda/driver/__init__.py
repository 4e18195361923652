"""The driver without cuassay's objects: status codes, devices, contexts and libraries."""
