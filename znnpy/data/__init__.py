"""Volumes and training data: files by region, scenes, patches, targets, augmentation, batches, outputs.

`opening.open_volume` opens files of any format, `scene.Scene` puts those of one place together,
`sampling.sampler.Sampler` draws patches, `sampling.prefetch.Prefetcher` prepares batches; `writing` holds
outputs.
"""
