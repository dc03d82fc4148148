"""From photos to labels: sources, decoding, preprocessing, backbones, embedding, extraction and the classifier."""
