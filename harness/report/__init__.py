"""What people and programs read: terminal, markdown, verdict.json. The only place that rounds."""
