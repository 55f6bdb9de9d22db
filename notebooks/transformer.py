# %% [markdown]
# # A transformer
#
# Attention kernels often have no second derivative, or a wrong one. fedscope takes PyTorch's kernel that has
# one, and tries the network before the first product: where an operation has none, it is named and refused.

# %%
import torch
from torch import nn

import fedscope

LENGTH, TOKENS = 12, 8


class Copier(nn.Module):
    """Predicts for each place the token three places before."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, TOKENS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text):
        hidden = self.tokens(text) + self.places.weight
        return self.out(self.layers(hidden, mask=self.mask, is_causal=True)).transpose(
            1, 2
        )  # (B, TOKENS, LENGTH)


torch.manual_seed(0)
text = torch.randint(TOKENS, (256, LENGTH))
targets = text.roll(3, 1)
net = Copier()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(text)[:, :, 3:], targets[:, 3:])
    loss.backward()
    optimizer.step()
float(loss.detach())


# %% [markdown]
# The loss is a mean over the samples, each of which has equally many tokens.


# %%
def token_loss(output, wanted):
    return nn.functional.cross_entropy(output[:, :, 3:], wanted[:, 3:])


found = fedscope.measure(net, data=(text, targets), loss=token_loss, layers=True, top_k=3)
found

# %% [markdown]
# ## Which part is sharp?
#
# λ_max of each layer's own diagonal block. A layer with parameters of its own and layers within it, here
# `self_attn`, is measured with those; `out_proj`, which is within it, is listed by itself too.

# %%
for layer in sorted(found.record.layers, key=lambda one: -one.value):
    print(f"{layer.name:40} {layer.value:8.3f} ± {layer.stderr_data:.3f}")

# %% [markdown]
# ## Hessian or Gauss–Newton?
#
# The Gauss–Newton matrix leaves out the curvature of the network itself, and has no negative eigenvalues.

# %%
ends = fedscope.measure(net, data=(text, targets), loss=token_loss, both_ends=True)
ggn = fedscope.measure(net, data=(text, targets), loss=token_loss, operator="ggn")
[round(one.value, 4) for one in ends.eigenvalues], round(ggn.lambda_max.value, 4)
