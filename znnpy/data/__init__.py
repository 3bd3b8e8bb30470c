"""Volumes and what training needs of them: targets, patches, augmentation, batches prepared ahead.

`source.open_volume` opens files, `scene.Scene` puts those of one place together, `sampler.Sampler`
draws patches, `prefetch.Prefetcher` prepares batches; `writing` holds outputs.
"""
