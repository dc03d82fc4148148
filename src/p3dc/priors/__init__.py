"""What is known of base classes: prototypes, and how their samples scatter."""
