"""Which comparisons there are, and which figures are wanted of them."""

from __future__ import annotations

from typing import Final

from scripts.perf.comparison import Comparison, Wanted

_PNN_TEXT = (
    "Whole runs of progressive networks on made-up images, with the feature cache and without any. A column's seconds "
    "per epoch are medians over its epochs, so that the one-time filling is not in them; predicted from the first "
    "column by the multiply-accumulates of the column itself: three times its forward pass per training image, once "
    "per validation image. *whole run* is the sum of all stages, evaluation included."
)
_PNN_EQUAL = (
    Wanted("equal_weights", "weights with the cache, with a budget of none, and without it: equal, bit by bit", "yes"),
    Wanted(
        "largest_deviation", "largest deviation of a column's seconds per epoch from the prediction", "share", None, 0.2
    ),
)
_SEU_TEXT = (
    "Tasks of SEU learned three ways: as it is; without the feature cache; and plainly, which is in PyTorch's default "
    "memory format, with torch's own convolutions and gradients, no ReLU shared, and no feature cache. Later runs take "
    "the genotypes and paths of the first, so that all do the same work. Accuracies differ between the ways all the "
    "same: sums in another order are rounded otherwise, and training amplifies it."
)
_SEU_WANTED = (
    Wanted("learning_ratio", "creation and training of all tasks but the first, plain / as it is", least=2.0),
    Wanted("search_ratio", "search, plain / as it is", least=1.3),
    Wanted("equal_passes", "image passes are the same in every stage", "yes"),
    Wanted("equal_weights", "weights with and without the feature cache: equal, bit by bit", "yes"),
)

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
        "pnn_5",
        "Progressive networks, colour images",
        "pnn",
        _PNN_TEXT,
        (Wanted("run_ratio", "whole run, without / with the feature cache", least=1.4), *_PNN_EQUAL),
    ),
    Comparison(
        "pnn_10",
        "Progressive networks, grey images",
        "pnn",
        _PNN_TEXT,
        (Wanted("run_ratio", "whole run, without / with the feature cache", least=1.8), *_PNN_EQUAL),
    ),
    Comparison("seu_mdl", "SEU with the creator mdl", "seu", _SEU_TEXT, _SEU_WANTED),
    Comparison("seu_frugal", "SEU with the creator frugal", "seu", _SEU_TEXT, _SEU_WANTED),
    Comparison(
        "ltg",
        "Learn to Grow",
        "ltg",
        "Whole runs of Learn to Grow with the feature cache and without any.",
        (Wanted("equal_weights", "weights with and without the feature cache: equal, bit by bit", "yes"),),
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
        "passes",
        "Predicted image passes",
        "passes",
        "What `seu-bench cost` says of each stage of each task against what the run counted.",
        (Wanted("exact", "predicted and counted image passes are the same in every stage", "yes"),),
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
        "flops",
        "Arithmetic per second",
        "flops",
        "Floating-point operations of one step, forward and backward, as torch's counter has them for torch's own "
        "convolutions, divided by the seconds that our step takes; beside a product of square matrices in float32.",
    ),
    Comparison(
        "growth",
        "Long streams",
        "growth",
        "Seconds of learning (search, creation and training) of each task of a long stream: whether later tasks take "
        "longer than earlier ones. After each task all tasks so far are evaluated; that grows with their number, and "
        "is on its own.",
        (
            Wanted("naive", "naive, mean of the later half of the tasks / of the earlier one", most=1.15),
            Wanted("ewc", "ewc, the same", most=1.15),
            Wanted("seu_all_new", "seu with the creator all_new, the same", most=1.15),
            Wanted("seu_mdl", "seu with the creator mdl, the same", most=1.15),
        ),
    ),
    Comparison(
        "formats",
        "Memory formats and number formats",
        "formats",
        "Training and evaluation steps, each against the same step in PyTorch's default memory format, or in float32.",
    ),
    Comparison(
        "threads",
        "Threads",
        "threads",
        "Training steps with one thread, as runs compute unless `--threads` says otherwise, and with one for each "
        "core, on the machine as it is and while as many other processes as there are cores compute.",
    ),
    Comparison(
        "allocation",
        "Memory that is used again",
        "allocation",
        "A task of SEU with a drawn genotype and new units only, in processes that use again what memory they free, as "
        "the command does, and in processes that return it to the system, as the C library does by itself.",
        (Wanted("least", "training, returned / reused, least of all", least=1.0),),
    ),
    Comparison(
        "stacking",
        "Seeds together",
        "stacking",
        "Training steps of several seeds of one network, of which each has images of its own: weights stacked, and "
        "gradients of all computed as one by `torch.func.vmap`, and one seed after another.",
    ),
    Comparison(
        "searchers",
        "Searchers",
        "searchers",
        "Seconds of the search on one task, as a multiple of those of the searcher mdl.",
    ),
    Comparison(
        "compile",
        "torch.compile",
        "compiling",
        "Training steps of a network of SEU's units, compiled and as it is. Compiling takes its own time, once for "
        "each architecture. Measured where it is asked for only.",
        by_default=False,
    ),
)


def comparison(name: str) -> Comparison:
    """A comparison by its name.

    Raises:
        KeyError: there is none.
    """
    return {each.name: each for each in COMPARISONS}[name]
