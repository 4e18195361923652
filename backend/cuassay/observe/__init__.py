"""What a program did, made visible: memory over time; without a driver, from what was recorded."""
