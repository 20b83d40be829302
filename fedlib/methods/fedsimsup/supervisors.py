"""FedSimSup's private supervisors (section 4, Table 3): L, C and T. They are not in `MODELS`: no run uses one alone.

The paper says "about one-sixth" of LeNet5 for L and describes neither C nor T; the widths are a reading (A8, A9).
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedlib.models.lenet5 import layers
from fedlib.models.model import Builder
from fedlib.models.pooling import MaxPool2


def small_lenet(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build L: `lenet5_plain` with widths 3-6-50-34, or 3-6-44-30 for more than 10 classes, a sixth of its size."""
    # 10,318 for 3x32x32 and 10 classes, 11,778 for 100 classes, and 8,074 for 1x28x28 and 62 classes
    return layers("small_lenet", shape, n_classes, widths=(3, 6, 50, 34) if n_classes <= 10 else (3, 6, 44, 30))


def small_lenet4(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build L for `lenet4`: widths 13-26-207, or 13-26-192 for more than 10 classes, a sixth of its size."""
    # 146,301 for 3x32x32 and 10 classes, 153,756 for 100 classes, and 100,844 for 1x28x28 and 62 classes
    return layers("small_lenet4", shape, n_classes, widths=(13, 26, 207) if n_classes <= 10 else (13, 26, 192))


def small_cnn(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build C: two 3x3 convolutions and average pooling; 1,562 parameters for 3x32x32 and 10 classes."""
    channels, height, width = shape
    if min(height, width) < 8:
        raise ValueError(f"shape={shape} is not allowed; small_cnn needs images of at least 8x8 pixels.")
    modules = OrderedDict(
        conv1=nn.Sequential(nn.Conv2d(channels, 8, 3), nn.ReLU(), MaxPool2()),  # [batch, 8, 15, 15]
        conv2=nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU()),  # [batch, 16, 13, 13]
        pool=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),  # [batch, 16]
        classifier=nn.Linear(16, n_classes),
    )
    return nn.Sequential(modules)


def small_vit(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build T: a Vision Transformer (Dosovitskiy et al., ICLR 2021), pre-norm, without dropout; larger than LeNet5."""
    # patches 4x4, width 64, depth 4, 4 heads, MLP 128; 142,026 parameters for 3x32x32 and 10 classes
    if shape[1] % PATCH or shape[2] % PATCH:
        raise ValueError(f"shape={shape} is not allowed; small_vit needs a height and a width divisible by {PATCH}.")
    return _Transformer(shape, n_classes)


SUPERVISORS: dict[str, Builder] = {
    "small_lenet": small_lenet,
    "small_lenet4": small_lenet4,
    "small_cnn": small_cnn,
    "small_vit": small_vit,
}

PATCH, WIDTH, DEPTH, HEADS, HIDDEN = 4, 64, 4, 4, 128


class _Transformer(nn.Module):
    def __init__(self, shape: tuple[int, int, int], n_classes: int):
        super().__init__()
        channels, height, width = shape
        patches = (height // PATCH) * (width // PATCH)
        self.embedding = nn.Linear(channels * PATCH**2, WIDTH)
        self.token = nn.Parameter(0.02 * torch.randn(WIDTH))
        self.position = nn.Parameter(0.02 * torch.randn(patches + 1, WIDTH))
        self.blocks = nn.Sequential(*(_Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.classifier = nn.Linear(WIDTH, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, n_classes] of images [batch, C, H, W]."""
        tiles = x.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH))  # [batch, C, rows, 4, columns, 4]
        patches = self.embedding(tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # [batch, patches, 64]
        z = torch.cat([self.token.expand(len(x), 1, -1), patches], 1) + self.position
        return self.classifier(self.norm(self.blocks(z)[:, 0]))


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, z: Tensor) -> Tensor:
        """Tokens [batch, n, 64] -> [batch, n, 64]; attention as plain products, which `vmap` and `grad` support."""
        q, k, v = self.qkv(self.norm1(z)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # [batch, heads, n, 16]
        attention = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(3)
        z = z + self.out((attention @ v).transpose(1, 2).flatten(2))
        return z + self.mlp(self.norm2(z))
