"""Think-acts."""
