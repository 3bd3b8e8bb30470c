"""The commented config that `znnpy init` writes: every key with its default or an example."""

from __future__ import annotations

from znnpy.config.training_section import TrainingSection
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.learning.losses import LOSSES
from znnpy.learning.optimizers import OPTIMIZERS

TEMPLATE = """\
# A znnpy config. Sizes are in voxels along z, y, x; one number stands for all three.
# Relative paths count from the folder of this file. Lines starting with '# ' and a key show
# the default or an example; remove the '#' to set it. Check with: znnpy check THIS_FILE

network:
  name: example            # for reports
  input: 1                 # number of input channels
  layers:                  # a chain, in order; each item is one operation
    - conv: {channels: 12, size: [1, 5, 5], function: relu}
    - max_filter: [1, 2, 2]          # sliding maximum; the layers after it are dilated by `stride`
    - conv: {channels: 16, size: 3, function: relu}
    - conv: {channels: 1, size: 1}
  # Further keys of conv, with their defaults:
  #   stride: 1            # true stride
  #   sparsity: 1          # dilation: distance between the filter's taps
  #   sparsens: 1          # dilates all layers after this one by this factor
  #   padding: 0           # same, or voxels round the feature map, z y x, e.g. [1, [0, 1], [2, 0]]
  #   border: zeros        # zeros, replicate or reflect: what `padding` adds
  #   groups: 1            # groups of channels, each convolved by itself
  #   function: linear     # <functions>
  #   weight_standardization: false # true: each output's filters are used with mean 0, variance 1
  #   repeat: 1            # blocks of filter taps that share one weight, e.g. [1, 2, 2]
  #   slope: 0.01          # of leaky_relu (default 0.01), or alpha of elu (default 1)
  #   amplitude: 1         # of tanh, which is amplitude * tanh(gain * x)
  #   gain: 1
  #   norm: batch          # batch, instance, group or layer (default: none), or in full:
  #   norm: {kind: batch, epsilon: 1e-5, momentum: 0.1, affine: true}
  #   norm: {kind: group, groups: 2} # of neighbouring channels (default 8)
  #   bias: true           # default: false with a norm
  #   init: he             # he, xavier, a number, or in full:
  #   init: {kind: uniform, low: -0.1, high: 0.1}
  #   init: {kind: normal, mean: 0, std: 0.01}
  #   tied: false          # true: prelu has one slope for all channels
  #   bias_init: {kind: constant, value: 0}
  #   learn: true          # false: filters, bias and norm stay as they start or were loaded
  # Further layers:
<layers>  # Instead of a chain, any graph (edges that meet in one node are summed):
  #   nodes:
  #     raw: {kind: input, channels: 1}
  #     out: {kind: transfer, channels: 3, function: linear, slope: 0.01, bias: true, init: 0}
  #   edges:
  #     c1: {kind: conv, from: raw, to: out, size: 3, stride: 1, sparsity: 1, init: he}
  # kinds of nodes: input, transfer, sum, concat; of edges: those of the layers
  # Or a U-Net, of which znnpy check shows the nodes and edges:
  #   unet: {widths: [28, 36, 48, 64, 80], down: [1, 2, 2], join: sum, norm: batch, function: elu}
  # Further keys of a unet; levels count from 0, the one of the input's size:
  #   input: 1             # number of input channels
  #   widths: [2, [2, 4]]  # channels of each level; a list in it: of each of the level's convolutions
  #   up_widths: [2]       # of each level on the way up (default: those of widths)
  #   down: 2              # factor of each step down; or a list with one for each, e.g. [[1, 2, 2]]
  #   size: 3              # filter size; or a list with one for each level, e.g. [[1, 3, 3], 3]
  #   up_size: 3           # on the way up (default: size)
  #   first_size: [1, 3, 3] # of each block's first convolution (default: size)
  #   stem: [1, 5, 5]      # filter size of a convolution before the first level (default: none)
  #   convs: 2             # convolutions of a block; or a list with one for each level
  #   up_convs: 1          # on the way up (default: convs)
  #   blocks: 1            # blocks of a level on the way down
  #   block: plain         # plain, residual, or in full:
  #   block: {kind: residual, from: first, add: sum}
  #   block: {kind: residual, from: input, add: norm, shortcut: average}
  #   up_block: plain      # on the way up (default: block)
  #   padding: same        # same, or valid: skip connections are cropped to fit
  #   border: zeros        # zeros, replicate or reflect: what padding adds
  #   pool: max            # max, average or strided: by the level's first convolution
  #   up: transposed       # transposed, linear, nearest, or in full:
  #   up: {kind: transposed, size: 2, channels: level}
  #   up: {kind: nearest, channels: same}
  #   join: concat         # concat or sum
  #   order: post          # pre: norm and function stand before convolutions
  #   norm: batch          # as in a layer, and so are function, slope, bias and dropout
  #   outputs: 1           # number of output channels
  #   output_size: 1       # filter size of the output
  #   output_function: linear
  #   heads: {lsds: 10}    # more outputs of full size; what they learn: training.outputs
  #   supervise: 0         # coarser levels with an output of their own: output1, output2 ...
  # Or a network file of ZNN:
  #   znn: net.znn

data:
  train: []                        # or, without [], one entry and more:
  #  - image: train.h5:volumes/raw                 # path (train.tif) or path:dataset
  #    labels: train.h5:volumes/labels/neuron_ids
  #    mask: train.h5:volumes/mask                 # voxels that count (not 0)
  #    slices: [0, 12]                             # along z, first and after the last; others may validate
  #  - image: {left: a.h5, right: b.h5}            # several inputs or outputs: by node
  # Many by one entry, paired by what * stands for, or folders of files:
  # {image: train/*_raw.tif, labels: train/*_labels.tif}
  # Images along z with a label for each (idx, npz, HDF5, CIFAR's .bin), with target: labels:
  # {image: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}
  validation: []
  # test: []                       # for the final evaluation; default: those of validation; []: none
  target: {kind: boundary, thickness: 1}           # or one of the next seven
  # target: {kind: affinity, offsets: [[-1, 0, 0], [0, -1, 0], [0, 0, -1]]}
  # target: {kind: lsd, sigma: 10}                 # local shape descriptors, ten channels; mostly of a second output
  # target: labels                                 # as given; class numbers for losses of classes
  # target: {kind: labels, ignore: 255}            # voxels with this label do not count
  # target: {kind: labels, first: 1}               # classes from 1 on; 0: not labelled, does not count
  # target: mask                                   # 1 where labels are not 0, channel by channel
  # target: {kind: image, scale: 0.00392157}       # values times scale, channel by channel
  normalize: mean_std              # mean_std, range, unit, none or ct (clip, by labelled voxels of data.train)
  # normalize: {kind: mean_std, per: slice, nonzero: true}  # of each slice; voxels of 0 do not count, and stay 0
  # normalize: {kind: percentiles, low: 1, high: 99, clip: true}  # these become 0 and 1; per, nonzero as above
  # normalize: {kind: clip, low: 0, high: 200, mean: 90, deviation: 60} # a window; the same for all volumes
  # normalize: {kind: fixed, mean: 128, deviation: 64} # the same for all volumes; or [r, g, b] each
  # prepare: {spacing: [null, 1.5, 1.5], crop: false}   # scans at one voxel size, then normalize as above
  # prepare: {normalize: [deviation], spacing: [null, 1.5, 1.5]}   # scans as nnU-Net has them, with normalize: none
  # prepare: {normalize: [{kind: deviation, inside: true}], transpose: [0, 1, 2], crop: true} # or range, bytes, none
  # prepare: {normalize: [{kind: clip, low: 0, high: 200, mean: 90, deviation: 60}], resample: {order: 3}}
  # prepare: {normalize: [range], restore: {order: 1, across: 0, planes: auto}}
  # prepare: {orient: RAS, spacing: [null, 1.5, 1.5], resample: {order: 1, grid: centres}} # grid: extent or centres
  replace_nonfinite: false         # true: NaN and infinite voxels become 0 after normalisation
  border: valid                    # valid, or mirror: volumes are mirrored at their borders
  axes: czyx                       # czyx, zcyx or zyxc: of images that have four, c channels
  # resolution: [40, 4, 4]         # nanometres z y x, when the file does not say
  in_memory: auto                  # auto, true or false
  # shards: {exchange: 1000, blocks: 4} # each rank keeps a part in memory, dealt anew every 1000 updates
  allow_external_links: false      # HDF5 links into other files
  allow_filters: []                # HDF5 compressions beside deflate and lzf, e.g. [zstd]

augment:
  enabled: true
  flips: [z, y, x]                 # axes along which patches are flipped
  swaps: auto                      # zyx, yx, zy, zx, none, or auto: axes of equal resolution
  # contrast: {probability: 0.3, factor: [0.75, 1.25], by: mixed}
  # brightness: {probability: 0.3, shift: [-0.3, 0.3], by: section}
  # gamma: {probability: 0.3, power: [0.7, 1.5], by: volume}
  # noise: {probability: 0.3, deviation: [0, 0.2]}
  # blur: {probability: 0.3, sigma: [0.5, 1.5], by: mixed}
  # low_resolution: {probability: 0.3, factor: [1.5, 3], by: mixed}
  # missing: {probability: 0.3, sections: 1}
  # dark: {probability: 0.3, factor: [0.2, 0.7], shift: [-2, -0.5]}
  # dropout: {probability: 0.3, boxes: 4, size: [2, 8, 8]}
  # slip: {probability: 0.3, shift: 8}
  # step: {probability: 0.3, shift: 8}
  # rotate: {probability: 0.3, angle: [-180, 180], axis: z}             # axis: z or any
  # affine: {probability: 0.3, scale: [0.8, 1.25], shear: [-0.1, 0.1], axes: yx}
  # elastic: {probability: 0.3, spacing: 32, deviation: [0, 4], axes: yx}

training:
  iterations: 1000                 # updates in all
  batch: 1                         # patches per update
  # microbatch: auto               # patches computed at once (default: batch); auto: by cores and memory; or a number
  order: random                    # random, or shuffled: every place once an epoch
  oversample_foreground: 0         # share of the patches that are centred on foreground, of any class alike
  output_shape: [4, 32, 32]        # the input patch follows from it
  loss: binomial_cross_entropy     # <loss names>
<losses>  # outputs: {output: {weight: 1, loss: square}}  # of several: factors (default 1), own losses
  rebalance: none                  # none, patch or volume
<optimizers>  learning_rate: 0.01
  # base_batch: 8                  # batch that this rate is meant for: times batch / base_batch (linear scaling)
  schedule: constant
  # schedule: {kind: step, every: 500, factor: 0.1}
  # schedule: {kind: exponential, every: 1, factor: 0.999}
  # schedule: {kind: inv, gamma: 0.0001, power: 0.75}   # divided by (1 + gamma * iteration) ** power
  # schedule: {kind: cosine, every: 1000, final: 0}
  # schedule: {kind: cosine, warmup: 100}               # any but one_cycle may begin with a warm-up, in full:
  # schedule: {kind: poly, every: 900, power: 0.9, warmup: {iterations: 100, start: 0.01}}
  # schedule: {kind: one_cycle, every: 1000, pct_start: 0.3, div_factor: 25, final_div_factor: 10000, anneal: cosine}
  # ema: {decay: 0.999}            # moving average of the weights, which is validated and predicted from
  # start_from: weights.npz        # weights to begin with: a run or npz file, or in full:
  # start_from: {weights: weights.npz, checkpoint: latest, rename: {"encoder.*": "*", "head*": null}}
  # freeze: ["c*"]                 # patterns of parameters that stay as they are
  # clip_norm: 1.0                 # scale gradients down to this norm
  seed: 0
  conv: auto                       # auto, direct, fft, spectral or winograd
  # plan: plan.json                # pins the algorithms: znnpy check CONFIG --save-plan plan.json
  precision: float32               # float64 is the slow reference
  validation: {every: 500, patches: 16, score: loss} # score of the best checkpoint, or: voxel_error, a metric
  # validation: {patience: 10}     # early stopping: after so many validations without a better score

distributed:                       # data parallel: training started by mpiexec or srun
  strategy: auto                   # auto, tree, multicolor, allreduce or blocking
  # colors: 8                      # trees of multicolor
  # chunk: 256KiB                  # bytes of a message
  shared_memory: true              # ranks of one host read each other's memory

inference:                         # for networks with padding, or instance, group or layer norm
  # window: [4, 32, 32]            # output voxels of a window; default: training.output_shape
  overlap: 0.5                     # fraction of a window that the next one overlaps
  blend: gaussian                  # gaussian, linear, constant or nnunet
  spread: steps                    # windows a step apart, or even: spread evenly
  # recalibrate: true              # undo what weighted classes did to probabilities; default: but for affinities
  # flips: [z, y, x]               # of scans (data.prepare): the mean over mirror images
  # regions: [1, 2]                # labels of channels that overlap, each above a half; default: that of the largest

run:
  directory: run                   # checkpoints, log and results; relative to this file
  # threads: 8                     # default: the cores this process may use
  checkpoint: {every: 500, keep: 3}
  log_every: 10
  tensorboard: false               # event files for TensorBoard; needs znnpy[tensorboard]
  # max_memory: 8GiB               # activation checkpointing where updates need more; default: no limit
  policy: critical-path            # critical-path, distance, fifo, lifo, random or layers
  steal_seed: 0
"""


def template() -> str:
    """Return commented YAML with every key of the config; it loads as it is."""
    functions = ", ".join(name for name in FUNCTIONS if name != "linear")
    examples = [kind.example for kind in EDGE_KINDS.values() if kind.example]
    layers = "".join(f"  #   - {example}\n" for example in examples)
    losses = "".join(f"  # loss: {loss.example}\n" for loss in LOSSES.values() if loss.example)
    default = TrainingSection.model_fields["optimizer"].default.kind
    optimizers = "".join(
        f"  {'' if kind.name == default else '# '}optimizer: {kind.example}\n"
        for kind in OPTIMIZERS.values()
    )
    parts = {"functions": functions, "layers": layers, "losses": losses, "optimizers": optimizers}
    text = TEMPLATE.replace("<loss names>", ", ".join(LOSSES))
    for name, part in parts.items():
        text = text.replace(f"<{name}>", part)
    return text
