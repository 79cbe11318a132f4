"""The built-in model adapters: one public module a model, helpers with a leading underscore (see harness.adapter)."""
