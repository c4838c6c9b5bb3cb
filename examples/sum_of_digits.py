"""A linear classifier learns to read handwritten digits from nothing but the sums of pairs.

    pip install "derivable[demo]" && python examples/sum_of_digits.py

`derivable demo digits` is the full version: a small CNN, held-out images, a picture.
"""

import torch
from sklearn.datasets import load_digits

import derivable as dv

PROGRAM = "rel sum_2(a + b) = digit_1(a), digit_2(b)"


def main(epochs: int = 5) -> float:
    torch.manual_seed(0)
    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float() / 16
    train, test = torch.randperm(len(images)).split([1400, len(images) - 1400])

    network = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Softmax(dim=-1))
    logic = dv.nn.Logic(
        PROGRAM,
        inputs={"digit_1": dv.categorical(range(10)), "digit_2": dv.categorical(range(10))},
        outputs={"sum_2": range(19)},
        provenance="exact",
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(epochs):
        for pairs in train[torch.randperm(len(train))].view(-1, 2).split(20):
            first, second = pairs.T
            sums = digits[first] + digits[second]  # the only supervision
            y = logic(digit_1=network(images[first]), digit_2=network(images[second]))
            loss = -y.gather(1, sums[:, None]).log().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    accuracy = (network(images[test]).argmax(dim=-1) == digits[test]).float().mean().item()
    print(f"digits read correctly, held out: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
