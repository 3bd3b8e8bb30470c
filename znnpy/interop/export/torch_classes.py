"""Layers that torch.nn does not have, as text: the table `CLASSES`."""

from __future__ import annotations

CLASSES = {
    "StandardizedConv3d": '''class StandardizedConv3d(nn.Conv3d):
    """A convolution whose filters are used with mean 0 and variance 1, those of each output channel."""

    def forward(self, x):
        over = (1, 2, 3, 4)
        variance, mean = torch.var_mean(self.weight, over, correction=0, keepdim=True)
        weight = (self.weight - mean) / torch.sqrt(variance + 1e-5)
        return self._conv_forward(x, weight, self.bias)
''',
    "AveragePool3d": '''class AveragePool3d(nn.Module):
    """Means of windows whose taps lie apart, or whose padding differs before and after (z, y, x pairs)."""

    def __init__(self, size, stride, dilation, padding, count_padding):
        super().__init__()
        self.size, self.stride, self.dilation = size, stride, dilation
        self.padding, self.count_padding = padding, count_padding

    def forward(self, x):
        total = self.sums(x)
        if self.count_padding:
            return total / (self.size[0] * self.size[1] * self.size[2])
        return total / self.sums(torch.ones_like(x[:1, :1]))

    def sums(self, x):
        z, y, x_ = self.padding
        x = functional.pad(x, (*x_, *y, *z))
        channels = x.shape[1]
        ones = x.new_ones((channels, 1, *self.size))
        return functional.conv3d(
            x, ones, stride=self.stride, dilation=self.dilation, groups=channels
        )
''',
    "SpreadMean": '''class SpreadMean(nn.Module):
    """The mean of each channel over all voxels, at each of them."""

    def forward(self, x):
        return x.mean((2, 3, 4), keepdim=True).expand_as(x)
''',
    "DepthToSpace": '''class DepthToSpace(nn.Module):
    """Neighbouring channels become the voxels of blocks (pixel shuffle)."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        (a, b, c), (batch, channels, z, y, x_) = self.factor, x.shape
        x = x.reshape(batch, channels // (a * b * c), a, b, c, z, y, x_)
        return x.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(batch, -1, z * a, y * b, x_ * c)
''',
    "Resize": '''class Resize(nn.Module):
    """Another size: along each axis of `ratios` so many voxels become so many, and `more` are added."""

    def __init__(self, ratios, more, mode, align_corners=None):
        super().__init__()
        self.ratios, self.more = ratios, more
        self.mode, self.align_corners = mode, align_corners

    def forward(self, x):
        along = zip(x.shape[2:], self.ratios, self.more)
        size = [n // few * many + more for n, (few, many), more in along]
        return functional.interpolate(x, size, mode=self.mode, align_corners=self.align_corners)
''',
    "ChannelNorm": '''class ChannelNorm(nn.LayerNorm):
    """Normalises each voxel over its channels."""

    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)
''',
    "LengthNorm": '''class LengthNorm(nn.Module):
    """Divides the channels of each voxel by the root of the sum of their squares."""

    def __init__(self, channels, eps, affine):
        super().__init__()
        self.eps, self.affine = eps, affine
        if affine:
            self.weight = nn.Parameter(torch.ones(channels))
            self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        x = functional.normalize(x, dim=1, eps=self.eps)
        if self.affine:
            x = x * self.weight[:, None, None, None] + self.bias[:, None, None, None]
        return x
''',
    "ResponseNorm": '''class ResponseNorm(nn.Module):
    """Global response normalisation (Woo et al. 2023)."""

    def __init__(self, channels, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        norms = torch.linalg.vector_norm(x, dim=(2, 3, 4), keepdim=True)
        unit = x * (norms / (norms.mean(1, keepdim=True) + self.eps))
        return x + unit * self.weight[:, None, None, None] + self.bias[:, None, None, None]
''',
    "ScaledTanh": '''class ScaledTanh(nn.Module):
    """amplitude * tanh(gain * x)."""

    def __init__(self, amplitude, gain):
        super().__init__()
        self.amplitude, self.gain = amplitude, gain

    def forward(self, x):
        return self.amplitude * torch.tanh(self.gain * x)
''',
    "Bias": '''class Bias(nn.Module):
    """Adds a number to each channel."""

    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x + self.bias[:, None, None, None]
''',
}
"""Classes that torch.nn does not have, written into a module that needs them."""
