"""Prints the losses of the second program in PyTorch's torch.distributed.rpc tutorial, from seed 1,
on random data, without dropout, with targets among the tokens and a learning rate that moves the
loss: python3 tests/golden/make_rpc_rnn.py > tests/golden/rpc_rnn.txt

Each worker has its own generator with the same seed, as in two processes. The parts run in one
process: the calls between them change no number."""
import torch
from torch import nn

STEPS, BATCH, TOKENS, INPUT, HIDDEN, LAYERS, BATCHES, EPOCHS, LR = 5, 3, 10, 2, 3, 4, 5, 10, 2

torch.set_num_threads(1)
torch.manual_seed(1)  # "ps"
encoder = nn.Embedding(TOKENS, INPUT)
nn.init.uniform_(encoder.weight, -0.1, 0.1)
decoder = nn.Linear(HIDDEN, TOKENS)
nn.init.zeros_(decoder.bias)
nn.init.uniform_(decoder.weight, -0.1, 0.1)
torch.manual_seed(1)  # "trainer"
hidden = (torch.randn(LAYERS, BATCH, HIDDEN), torch.randn(LAYERS, BATCH, HIDDEN))
lstm = nn.LSTM(INPUT, HIDDEN, LAYERS, dropout=0)
parameters = [*encoder.parameters(), *lstm.parameters(), *decoder.parameters()]
optimizer = torch.optim.SGD(parameters, lr=LR)
criterion = nn.CrossEntropyLoss()

print(f"torch {torch.__version__}: the loss of the last of {BATCHES} batches of each epoch,"
      f" lr {LR}, float32")
for epoch in range(EPOCHS):
    for _ in range(BATCHES):
        data = torch.randint(0, TOKENS, (STEPS, BATCH))
        target = torch.randint(0, TOKENS, (STEPS, BATCH))
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = lstm(encoder(data), hidden)
        loss = criterion(decoder(output).reshape(-1, TOKENS), target.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.9g}")
