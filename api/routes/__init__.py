"""The routes of the REST API: a module per noun, with its routes and its schemas."""
