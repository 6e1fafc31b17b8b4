#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the images and labels of the digits example as .npy files.

    pip install scikit-learn
    python examples/digits/get_data.py --out build/digits

takes the 1,797 handwritten digits of 8x8 pixels that come with scikit-learn (the test set of
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository), 1,437 of them to
train and 360 to test: x_train, x_test float32 [N, 1, 8, 8] in 0..1, y_train, y_test int64 [N].

With --synthetic nothing is needed or read: noisy seven-segment digits stand in.
"""

import argparse
import array
import math
import pathlib
import random

TRAINING = 1437
PIXELS = 64
# The pixels (row, column) of the seven segments of a 7x4 digit, and the segments of each digit.
SEGMENTS = {
    "a": [(0, c) for c in range(4)],
    "b": [(r, 3) for r in range(4)],
    "c": [(r, 3) for r in range(3, 7)],
    "d": [(6, c) for c in range(4)],
    "e": [(r, 0) for r in range(3, 7)],
    "f": [(r, 0) for r in range(4)],
    "g": [(3, c) for c in range(4)],
}
DIGITS = "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcfgd".split()


def handwritten() -> list[tuple[list[float], int]]:
    try:
        from sklearn.datasets import load_digits  # only here: the tests have no scikit-learn
    except ImportError:
        raise SystemExit("this needs scikit-learn: pip install scikit-learn, or --synthetic") from None

    images, labels = load_digits(return_X_y=True)
    return [([v / 16 for v in image], int(label)) for image, label in zip(images, labels)]


def synthetic(count: int = 1797) -> list[tuple[list[float], int]]:
    draw = random.Random(1)
    samples = []
    for i in range(count):
        image = [draw.random() * 0.3 for _ in range(PIXELS)]
        row, column = draw.randrange(2), draw.randrange(5)
        ink = 0.5 + draw.random() * 0.5
        for segment in DIGITS[i % 10]:
            for r, c in SEGMENTS[segment]:
                image[(row + r) * 8 + column + c] = ink
        samples.append((image, i % 10))
    return samples


def write_npy(path: pathlib.Path, kind: str, shape: tuple[int, ...], values: array.array) -> None:
    assert len(values) == math.prod(shape)
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    path.write_bytes(header + values.tobytes())


def write_part(folder: pathlib.Path, name: str, samples: list) -> None:
    pixels = array.array("f", (value for image, _ in samples for value in image))
    labels = array.array("q", (label for _, label in samples))
    write_npy(folder / f"x_{name}.npy", "<f4", (len(samples), 1, 8, 8), pixels)
    write_npy(folder / f"y_{name}.npy", "<i8", (len(samples),), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the data of the digits example.")
    parser.add_argument("--out", type=pathlib.Path, default="build/digits", help="folder")
    parser.add_argument("--synthetic", action="store_true", help="seven-segment digits instead")
    args = parser.parse_args()
    samples = synthetic() if args.synthetic else handwritten()
    random.Random(0).shuffle(samples)
    args.out.mkdir(parents=True, exist_ok=True)
    write_part(args.out, "train", samples[:TRAINING])
    write_part(args.out, "test", samples[TRAINING:])


if __name__ == "__main__":
    main()
