"""Norms in one kernel: only where torch gives what the model's own give, with the weights as they come to be."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from pilotfish.engine.norms import norms_at_once  # noqa: E402
from tiny import VOCABULARY, tiny_model  # noqa: E402

IDS = torch.arange(3, 43).reshape(2, 20) % VOCABULARY


class OffsetRMSNorm(nn.Module):
    """A norm of Gemma's kind: its weights are added to 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.full((width,), 0.5)), 1e-6

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * (1 + self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_says_the_same_with_norms_in_one_kernel(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(0).to(dtype).eval()
    norms = [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]
    with torch.no_grad():
        expected = model(IDS).logits
        assert norms_at_once(model) == len(norms) > 0
        monkeypatch.setattr(type(norms[0]), "forward", None)
        found = model(IDS).logits
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02 if dtype == torch.bfloat16 else 1e-5)
        norms[0].weight.mul_(-1)
        assert (model(IDS).logits - found).abs().max() > 0.1


def test_a_norm_of_another_kind_stays() -> None:
    model = nn.Sequential(OffsetRMSNorm(16), nn.RMSNorm(16), nn.Linear(16, 16))
    assert norms_at_once(model) == 0
    hidden = torch.randn(3, 16)
    torch.testing.assert_close(model[0](hidden), OffsetRMSNorm(16)(hidden))
