"""What experiments read: images and data sets, found, checked and cached."""
