"""From photos to features: reading, preparing, embedding."""
