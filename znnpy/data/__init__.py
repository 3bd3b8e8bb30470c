"""Volumes and what training needs of them: targets, patches, augmentation, batches prepared ahead.

`source.open_volume` opens files of any format, `scene.Scene` puts those of one place together,
`sampling.sampler.Sampler` draws patches, `sampling.prefetch.Prefetcher` prepares batches; `writing` holds
outputs.
"""
