"""A training in a process of its own, to be killed or to be one of several: `training_process.py FOLDER [--resume]`."""

import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from elvis.training.loop import train  # noqa: E402
from training_examples import tiny_config, toy_examples  # noqa: E402


def config():
    return tiny_config(steps=24, checkpoint_every=4, validate_every=8, augmented_share=0.5, views=2, triplets=7)


def main():
    folder, resume = Path(sys.argv[1]), "--resume" in sys.argv
    torch.set_num_threads(1)

    def on_step(report):
        (folder / "step").write_text(str(report.step))
        time.sleep(float(os.environ.get("PAUSE", "0")))

    folder.mkdir(exist_ok=True)
    trained = train(toy_examples(), config(), folder, resume=resume, tensorboard=False, on_step=on_step)
    rank = os.environ.get("RANK", "0")
    torch.save({"last": trained.last.state_dict(), "best": trained.head.state_dict()}, folder / f"result{rank}.pt")


if __name__ == "__main__":
    main()
