"""Profiles, timelines, memory pictures and the race sanitizer; they work from recorded events, without a driver."""
