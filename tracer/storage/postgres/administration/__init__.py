"""Migrations, views, and the roles of analysts."""
