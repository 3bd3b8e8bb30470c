"""Training samples: draws patches from volumes, augments them, makes targets, prepares batches ahead."""
