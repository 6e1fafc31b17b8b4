# SPDX-License-Identifier: Apache-2.0
"""The networks, data and optimizers of torch_compare.py."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 14  # 8 + 4 + 2 on the three devices
ROWS = 3 * BATCH  # an epoch is three steps
STEPS = 8


class Optimizer(NamedTuple):
    kind: str
    rate: float
    decay: float = 0.0
    no_decay: str = ""
    clip: float = 0.0
    epsilon: float = 1e-8
    warmup: int = 0  # with a cosine to a tenth of the rate after it; 0: constant

    def factor(self, step: int) -> float:
        if step < self.warmup or self.warmup == 0:
            return (step + 1) / self.warmup if self.warmup > 0 else 1.0
        part = (step - self.warmup) / (STEPS - self.warmup)
        return 0.1 + 0.9 * (1 + math.cos(math.pi * part)) / 2

    def schedule(self) -> list[str]:
        cosine = ["--schedule", "cosine", "--min-rate", str(0.1 * self.rate)]
        cosine += ["--warmup", str(self.warmup)]
        return cosine if self.warmup > 0 else []

    def options(self) -> list[str]:
        options = ["--optimizer", self.kind, "--lr", str(self.rate)]
        options += ["--weight-decay", str(self.decay), "--epsilon", str(self.epsilon)]
        options += ["--clip-norm", str(self.clip)]
        return options + (["--no-decay", self.no_decay] if self.no_decay else [])

    def of(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = [
            {"params": [p], "weight_decay": 0.0 if self.spares(name) else self.decay}
            for name, p in model.named_parameters()
            if p.requires_grad
        ]
        if self.kind in ("sgd", "momentum"):
            return torch.optim.SGD(groups, self.rate, 0.9 if self.kind == "momentum" else 0.0)
        kind = torch.optim.AdamW if self.kind == "adamw" else torch.optim.Adam
        return kind(groups, self.rate, eps=self.epsilon)

    def spares(self, name: str) -> bool:
        return bool(self.no_decay) and re.search(self.no_decay, name) is not None


class Case(NamedTuple):
    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, ...]]  # rows of the inputs and of the labels
    optimizer: Optimizer
    strategies: tuple[str, ...] = ("dp-proportional",)
    options: tuple[str, ...] = ()
    batch_axis: int = 0  # of the inputs and the output
    zero: str = "^k "  # parameters whose gradient is zero in exact arithmetic
    ignore: int = -100
    own_loss: bool = False  # the model's output; then all data are inputs


# ---- networks ----------------------------------------------------------------------------------


class Encoder(nn.Module):
    """A causal transformer whose output layer is its embedding."""

    def __init__(self, vocab: int = 23, length: int = 9, width: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.1)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(width)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embedding(ids) + self.position
        hidden = self.norm(self.layer(hidden, src_mask=self.mask.to(hidden.dtype)))
        return hidden @ self.embedding.weight.t()


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase], vocab: int = 17, width: int = 12, **options):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.rnn = cell(width, width, **options)
        self.decoder = nn.Linear(width * (2 if self.rnn.bidirectional else 1), vocab)

    def forward(self, ids: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.embedding(ids))[0])


class Translator(nn.Module):
    """Sequence-first encoder and decoder; the encoder's embedding is frozen."""

    def __init__(self, vocab: int = 19, width: int = 16, length: int = 7):
        super().__init__()
        self.source = nn.Embedding(vocab, width).requires_grad_(False)
        self.target = nn.Embedding(vocab, width)
        self.transformer = nn.Transformer(width, 4, 1, 1, 24, dropout=0.0)
        self.projection = nn.Linear(width, vocab, bias=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source, target = self.source(source), self.target(target)
        mask = self.mask.to(target.dtype)
        return self.projection(
            self.transformer(source, target, tgt_mask=mask, tgt_is_causal=False)
        )


class Segmenter(nn.Module):
    """Classes of pixels, from a coarse and a fine branch."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 6, (3, 5), padding=(1, 2)), nn.PReLU(6))
        self.coarse = nn.Sequential(
            nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"),
            nn.InstanceNorm2d(8, affine=True),
            nn.PReLU(),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        )
        self.head = nn.Sequential(nn.LocalResponseNorm(5), nn.ELU(), nn.Conv2d(14, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        return self.head(torch.cat([fine, self.coarse(fine)], 1))


class Signal(nn.Module):
    """One-dimensional convolutions before a plain recurrent layer and a softmax over time."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(8)
        self.rnn = nn.RNN(8, 10, nonlinearity="tanh", batch_first=True)
        self.score = nn.Linear(10, 1)
        self.out = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.leaky_relu(self.norm(self.conv(x)), 0.1).transpose(1, 2)
        hidden = self.rnn(hidden)[0]
        weights = torch.softmax(self.score(hidden), 1)
        return self.out((weights * hidden).sum(1))


class Functions(nn.Module):
    """Functions of numbers, rows and matrices side by side."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.first = nn.Linear(7, width)
        self.last = nn.Linear(width * len(self.of_numbers(torch.ones(1, 1))), width)
        self.out = nn.Linear(len(self.of_rows(torch.ones(1, 1, 2))), 1)

    def of_numbers(self, x: Tensor) -> list[Tensor]:
        plain = F.relu6, F.hardtanh, F.hardsigmoid, F.selu, F.celu, F.softplus, F.softsign, F.mish
        plain += F.logsigmoid, F.tanhshrink, torch.abs, torch.sin, torch.cos, torch.erf, torch.exp
        square = x * x + 0.5
        some = [function(x) for function in plain]
        some += [square.sqrt(), square.rsqrt(), square.log(), 1 / square, x**3, square**1.5]
        some += [F.gelu(x, approximate="tanh"), F.hardswish(3 * x), x.clamp(-0.4, 0.6), 2 - x]
        some += [torch.where(x > 0.1, x, 0.3 * square), torch.maximum(x, square), x.clamp(min=0.2)]
        return some + [torch.minimum(x, 0.3 * square), x.sign() * square, x / square]

    def of_rows(self, x: Tensor) -> list[Tensor]:
        some = [x.mean(-1), x.sum(-1), x.amax(-1), x.amin(-1), x.var(-1), x.std(-1)]
        some += [x.logsumexp(-1), x.norm(dim=-1), x.abs().sum(-1), x.cumsum(-1).square().sum(-1)]
        some += [(F.normalize(x, dim=-1) * x.softmax(-1)).sum(-1), x.log_softmax(-1)[..., 0]]
        some += [torch.einsum("bij,bkj->bi", x, x), x.flip(-1)[..., 0], x.roll(1, -1)[..., 0]]
        return some + [F.pad(x, (1, 0))[..., -1], x.tril().sum(-1), x.repeat(1, 1, 2)[..., 3]]

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.last(torch.cat(self.of_numbers(self.first(x)), -1)))
        rows = self.of_rows(hidden.unflatten(-1, (2, -1)))
        return self.out(torch.stack(rows, -1)).mean(1)


class Volumes(nn.Module):
    """Three dimensions, odd pools, a convolution that is used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(1, 4, (2, 3, 3), (1, 2, 1), (1, 1, 0))
        self.pool = nn.MaxPool3d((2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True)
        self.shared = nn.Conv3d(4, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose3d(4, 6, 2, 2, groups=2)
        self.norm = nn.BatchNorm3d(4)
        self.average = nn.AvgPool3d(3, 2, 1, ceil_mode=True)
        self.out = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.unsqueeze(1))
        hidden = self.pool(self.norm(hidden))
        hidden = torch.relu(self.shared(torch.relu(self.shared(hidden))))
        return self.out(self.average(torch.relu(self.up(hidden))).amax((2, 3)).mean(-1))


class Judge(nn.Module):
    """Computes its own loss, from weighted classes and from distances."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 24), nn.GLU(), nn.Dropout(0.0), nn.LayerNorm(12))
        self.classes = nn.Linear(12, 5)
        self.points = nn.Linear(12, 3)
        self.flags = nn.Linear(12, 2)
        self.weight = torch.tensor([1, 0.5, 2, 1, 3])

    def forward(self, x: Tensor, kind: Tensor, point: Tensor) -> Tensor:
        hidden = self.body(x)
        weight = self.weight.to(x.dtype)
        loss = F.cross_entropy(self.classes(hidden), kind, weight)
        far = (self.points(hidden) - point).abs()
        loss = loss + torch.where(far < 0.5, far * far, far - 0.25).mean()
        loss = loss + 0.1 * (1 - F.cosine_similarity(self.points(hidden), point)).mean()
        flags = (point[:, :2] > 0).to(hidden.dtype)
        return loss + F.binary_cross_entropy_with_logits(self.flags(hidden), flags)


class Reader(nn.Module):
    """Attends to the words of a text that are there, and reads the result in both directions."""

    def __init__(self, vocab: int = 21, width: int = 12):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.places = nn.Embedding(9, width)
        self.attention = nn.MultiheadAttention(width, 3, batch_first=True)
        self.rnn = nn.LSTM(width, 8, 2, bidirectional=True, batch_first=True)
        self.scale = nn.Parameter(torch.ones(16))
        self.out = nn.Linear(8, 21)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]).expand(ids.shape[0], -1)
        hidden = self.words(ids) + self.places(places)
        absent = ids < 4
        hidden = hidden + self.attention(hidden, hidden, hidden, absent, need_weights=False)[0]
        hidden = self.rnn(hidden.masked_fill(absent.unsqueeze(-1), 0.3))[0]
        norm = hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        left, right = norm.chunk(2, -1)
        return self.out(left * torch.sigmoid(right) + torch.cat([right[:, 1:], right[:, :1]], 1))


class Picture(nn.Module):
    """Shuffled pixels, paddings and scales of all sorts."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular")
        self.second = nn.Conv2d(2, 6, 3, stride=(2, 1), padding="valid", padding_mode="replicate")
        self.third = nn.Conv2d(6, 6, 3, padding=1, padding_mode="replicate")
        self.norm = nn.GroupNorm(6, 6)
        self.out = nn.Conv2d(6, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.pixel_shuffle(torch.relu(self.first(x)), 2)
        hidden = self.second(F.pad(hidden, (1, 2, 0, 1), value=0.5))
        small = F.interpolate(self.norm(self.third(hidden)), scale_factor=0.5, mode="nearest")
        large = F.interpolate(small, size=(12, 25), mode="bicubic", align_corners=True)
        hidden = F.max_pool2d(hidden, 2) * 0.5 + F.lp_pool2d(large.abs() + 0.1, 2, 2)
        return self.out(torch.tanh(hidden)).mean((2, 3))


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12, momentum=0.3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12 * 9, 10),
    )


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.Hardswish(),
        nn.Conv2d(8, 8, 3, 2, 1, groups=8),
        nn.SiLU(),
        nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4),
        nn.GroupNorm(3, 12),
        nn.GELU(),
        nn.ConvTranspose2d(12, 6, 3, 2, 1, 1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 10),
    )


def dense() -> nn.Module:
    return nn.Sequential(
        nn.Linear(7, 24),
        nn.Tanh(),
        nn.LayerNorm(24),
        nn.Linear(24, 16),
        nn.Sigmoid(),
        nn.Linear(16, 1),
    )


# ---- data --------------------------------------------------------------------------------------


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, 3, 12, 12), torch.randint(10, (ROWS,))


def pixels() -> tuple[Tensor, Tensor]:
    labels = torch.randint(-1, 5, (ROWS, 8, 8))  # -1: none
    return torch.randn(ROWS, 3, 8, 8), labels


def signals() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, 3, 16), torch.randn(ROWS, 4)


def sentences() -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randint(19, (3, ROWS, 7)))


def judged() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(ROWS, 7), torch.randint(5, (ROWS,)), torch.randn(ROWS, 3)


def vectors() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, 7), torch.randn(ROWS, 1)


def text(vocab: int, length: int = 9, padded: bool = False) -> tuple[Tensor, Tensor]:
    ids, labels = torch.randint(vocab, (2, ROWS, length))
    if padded:  # each row is as long as it likes
        labels[torch.arange(length) >= torch.randint(2, length + 1, (ROWS, 1))] = -1
    return ids, labels


# ---- cases -------------------------------------------------------------------------------------

SYNC = ("--batchnorm", "sync")
WHOLE = ("dp-allreduce", "dp-proportional", "dp-ps")
CASES = {
    "conv_sgd": Case(
        pooled, images, Optimizer("sgd", 0.05), ("dp-proportional", "dp-ps"), SYNC, zero="^0.bias"
    ),
    "conv_momentum": Case(
        pooled,
        images,
        Optimizer("momentum", 0.02, 0.01, "^(0|1|5)", 1.0, warmup=3),
        ("dp-allreduce",),
        SYNC,
        zero="^0.bias",
    ),
    "depthwise_adam": Case(
        depthwise,
        images,
        Optimizer("adam", 1e-3, 0.01, "bias$"),
        ("dp-proportional", "mp-pipeline"),
    ),
    "transformer_momentum": Case(
        Encoder,
        lambda: text(23),
        Optimizer("momentum", 0.1, 1e-3, "bias$|norm", 0.5),
        ("dp-proportional", "mp-pipeline", "mp-metis"),
    ),
    "transformer_adamw": Case(
        Encoder,
        lambda: text(23, padded=True),
        Optimizer("adamw", 1e-3, 0.1, "bias$|norm", epsilon=1e-5),
        options=("--ignore-label", "-1"),
        ignore=-1,
    ),
    "lstm_adam": Case(
        lambda: Recurrent(nn.LSTM),
        lambda: text(17),
        Optimizer("adam", 2e-3, clip=0.3, warmup=1),
        ("dp-proportional", "mp-pipeline"),
        batch_axis=1,
    ),
    "gru_adamw": Case(
        lambda: Recurrent(nn.GRU, batch_first=True, bidirectional=True),
        lambda: text(17, padded=True),
        Optimizer("adamw", 2e-3, 0.05, "bias"),
        options=("--ignore-label", "-1"),
        ignore=-1,
    ),
    "translator_adam": Case(
        Translator,
        sentences,
        Optimizer("adam", 1e-3, 0.01, "norm", 1.0, epsilon=1e-5),
        ("dp-proportional", "mp-pipeline"),
        ("--freeze", "^source"),
        batch_axis=1,
    ),
    "segmenter_momentum": Case(
        Segmenter,
        pixels,
        Optimizer("momentum", 0.1, 0.01, "bias"),
        ("dp-proportional", "mp-pipeline"),
        ("--ignore-label", "-1"),
        zero="^coarse.1.bias",
        ignore=-1,
    ),
    "signal_adamw": Case(
        Signal,
        signals,
        Optimizer("adamw", 1e-3, 0.01, "^norm", 0.2, epsilon=1e-5),
        ("dp-proportional", "dp-ps"),
        ("--loss", "mse", *SYNC),
        zero="^(conv|score).bias",
    ),
    "functions_momentum": Case(
        Functions,
        vectors,
        Optimizer("momentum", 0.01, clip=1.0),
        (*WHOLE, "mp-pipeline"),
        ("--loss", "mse"),
    ),
    "volumes_momentum": Case(
        Volumes,
        images,
        Optimizer("momentum", 0.02),
        ("dp-proportional", "mp-metis"),
        SYNC,
        zero="^first.bias",
    ),
    "judge_adamw": Case(
        Judge,
        judged,
        Optimizer("adamw", 1e-3, 0.1),
        (*WHOLE, "mp-pipeline"),
        own_loss=True,
    ),
    "reader_momentum": Case(
        Reader,
        lambda: text(21),
        Optimizer("momentum", 0.1),
        ("dp-proportional", "mp-pipeline", "mp-metis"),
    ),
    "picture_sgd": Case(
        Picture,
        images,
        Optimizer("sgd", 0.05, 0.01),
        ("dp-proportional", "mp-pipeline"),
        zero="^third.bias",
    ),
    "dense_mse": Case(
        dense,
        vectors,
        Optimizer("sgd", 0.1, 0.01),
        (*WHOLE, "mp-pipeline"),
        ("--loss", "mse"),
    ),
    "dense_mse_adam": Case(dense, vectors, Optimizer("adam", 1e-3), WHOLE, ("--loss", "mse")),
}
