"""Which comparisons there are, and which figures are wanted of them."""

from __future__ import annotations

from typing import Final

from scripts.perf.comparison import Comparison, Wanted

COMPARISONS: Final[tuple[Comparison, ...]] = (
    Comparison(
        "loop_alexnet",
        "The training loop on the AlexNet variant",
        "loops",
        "The strategy naive against a plain PyTorch loop that gathers the same batches from memory, clips the same way "
        "and counts loss and accuracy, on the same network.",
        (Wanted("bare", "speed of naive / speed of the plain loop", least=0.97),),
    ),
    Comparison(
        "loop_cnn",
        "The training loop on a small network",
        "loops",
        "The same on a convolutional network so small that everything beside it counts, and against Avalanche's stock "
        "Naive with its own loader and its metrics of accuracy and loss.",
        (
            Wanted("bare", "speed of naive / speed of the plain loop", least=0.95),
            Wanted("avalanche", "speed of naive / speed of Avalanche's Naive", least=1.35),
        ),
    ),
    Comparison(
        "loop_rehearsal",
        "The training loop with a memory",
        "loops",
        "Replay and ER-ACE on the small network, in batches of 32 images and as many remembered ones, against "
        "Avalanche's own, with its loader, its memory and its metrics.",
        (
            Wanted("replay", "speed of replay / speed of Avalanche's Naive with its ReplayPlugin", least=1.0),
            Wanted("er_ace", "speed of er_ace / speed of Avalanche's ER_ACE", least=1.0),
        ),
    ),
    Comparison(
        "pnn",
        "Progressive networks",
        "frozen",
        "Whole runs of progressive networks on made-up images, with the feature cache and without any: the sum of all "
        "stages, evaluation included.",
        (
            Wanted("run_ratio", "whole run, without / with the feature cache", least=1.4),
            Wanted(
                "equal_weights",
                "weights with the cache, with a budget of none, and without it: equal, bit by bit",
                "yes",
            ),
        ),
    ),
    Comparison(
        "frozen",
        "Heads on a frozen backbone",
        "frozen",
        "Whole runs of naive on a frozen residual network, whose features are computed once per image of a task and "
        "cached, and in every epoch anew.",
        (
            Wanted("training_ratio", "training, without / with the feature cache", least=5.0),
            Wanted("equal_weights", "weights with and without the feature cache: equal, bit by bit", "yes"),
        ),
    ),
    Comparison(
        "images",
        "Folders of images",
        "images",
        "Epochs over the shuffled images of a folder of JPEG files, resized, flipped at random and normalised: from "
        'the file of decoded images that `cache = "disk"` makes once, from memory, and by torchvision\'s ImageFolder '
        "in torch's loader, which decodes every file in every epoch. Making the file is not counted; it takes about as "
        "long as an epoch of ImageFolder's.",
        (
            Wanted("over_torchvision", 'images per second, `cache = "disk"` / ImageFolder in one process', least=3.0),
            Wanted("over_workers", "the same against ImageFolder with worker processes", least=2.0),
        ),
    ),
    Comparison(
        "memory",
        "Memory",
        "memory",
        "Cached features of frozen layers, and the most memory that the process held (resident set), by "
        "budgets of `--feature-cache`. Each run is a process of its own.",
        (Wanted("within_budget", "cached features are within the budget", "yes"),),
    ),
    Comparison(
        "startup",
        "Starting",
        "startup",
        "From the start of the process to its end; of `run`, to the moment where the record says that the run has "
        "begun: what is left is training.",
        (
            Wanted("help", "`seu-bench --help`, least of all", "seconds", None, 0.6),
            Wanted("list", "`seu-bench list`, least of all", "seconds", None, 0.6),
            Wanted("run_over_torch", "from `seu-bench run` to training, against importing torch", "times", None, 1.6),
        ),
    ),
    Comparison(
        "growth",
        "Long streams",
        "growth",
        "CPU seconds of each task of streams of 20, 60 and 100 (of `icarl` 20, 50 and 100): of all between two "
        "evaluations, and of evaluating a task, of which there are more after each task. Ratios are means of the later "
        "half of the tasks over those of the earlier one; wanted is the largest of the three lengths.",
        tuple(
            Wanted(f"{name}{suffix}", f"`{name}`, {what}: later / earlier half", most=1.1)
            for suffix, what in (("", "learning a task"), ("_evaluation", "evaluating a task"))
            for name in ("naive", "ewc", "replay", "seu_all_new", "icarl", "slda")
        ),
    ),
)


def comparison(name: str) -> Comparison:
    """A comparison by its name.

    Raises:
        KeyError: there is none.
    """
    return {each.name: each for each in COMPARISONS}[name]
