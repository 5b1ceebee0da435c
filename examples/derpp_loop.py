"""DER++ as a plain PyTorch training loop: ten digits in five tasks, each with a head of its own."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

CAPACITY, REPLAYED, ALPHA, BETA = 200, 32, 0.1, 0.5


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(100, 2) for _ in range(5))

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        features = self.body(x)
        return torch.stack([head(features) for head in self.heads])[task, torch.arange(len(x))]


class Memory:
    def __init__(self) -> None:
        self.images: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.seen = 0

    def draw(self) -> list[Tensor]:
        chosen = torch.randperm(len(self.images))[:REPLAYED].tolist()
        return [torch.stack(values) for values in zip(*(self.images[place] for place in chosen), strict=True)]

    def add(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> None:
        for row, chance in enumerate(torch.rand(len(y))):
            place = int(chance * (self.seen + 1)) if self.seen >= CAPACITY else self.seen
            image = (x[row], y[row], task[row], logits[row].detach())
            if place == len(self.images):
                self.images.append(image)
            elif place < CAPACITY:
                self.images[place] = image
            self.seen += 1


def batch_loss(model: nn.Module, memory: Memory, x: Tensor, y: Tensor, task: Tensor) -> Tensor:
    logits = model(x, task)
    loss = cross_entropy(logits, y)
    if memory.images:
        old_x, _, old_task, old_logits = memory.draw()
        loss = loss + ALPHA * mse_loss(model(old_x, old_task), old_logits)
        old_x, old_y, old_task, _ = memory.draw()
        loss = loss + BETA * cross_entropy(model(old_x, old_task), old_y)
    memory.add(x, y, task, logits)
    return loss


def main() -> None:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
    tested = torch.rand(len(y)) < 0.25
    model, memory = Network(), Memory()
    for learned in range(5):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        rows = ((y // 2 == learned) & ~tested).nonzero().flatten()
        for _ in range(10):
            for batch in rows[torch.randperm(len(rows))].split(32):
                optimizer.zero_grad()
                batch_loss(model, memory, x[batch], y[batch] % 2, y[batch] // 2).backward()
                optimizer.step()
    hits = model(x[tested], y[tested] // 2).argmax(1) == y[tested] % 2
    print(f"accuracy {hits.double().mean():.4f}, right after the last of five tasks")


if __name__ == "__main__":
    main()
