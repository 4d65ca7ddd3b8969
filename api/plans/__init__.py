"""Plans and trees."""
