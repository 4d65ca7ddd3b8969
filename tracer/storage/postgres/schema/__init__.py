"""Tables, and the SQL fragments that follow from them."""
