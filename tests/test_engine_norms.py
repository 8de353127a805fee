"""Norms in one kernel: only where torch gives what the model's own give, with the weights as they come to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from pilotfish.engine.continuous import CannotServe, ContinuousTokens  # noqa: E402
from pilotfish.engine.norms import as_they_were, norms_at_once  # noqa: E402
from tiny import VOCABULARY, tiny_model  # noqa: E402

IDS = torch.arange(3, 43).reshape(2, 20) % VOCABULARY


class OffsetRMSNorm(nn.Module):
    """A norm of Gemma's kind: its weights are added to 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.full((width,), 0.5)), 1e-6

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return hidden_states * scale * (1 + self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_says_the_same_with_norms_in_one_kernel(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(0).to(dtype).eval()
    norms = [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]
    with torch.no_grad():
        expected = model(IDS).logits
        assert norms_at_once(model) == norms != []
        monkeypatch.setattr(type(norms[0]), "forward", None)
        found = model(IDS).logits
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02 if dtype == torch.bfloat16 else 1e-5)
        norms[0].weight.mul_(-1)
        assert (model(IDS).logits - found).abs().max() > 0.1


def test_a_norm_of_another_kind_stays() -> None:
    model = nn.Sequential(OffsetRMSNorm(16), nn.RMSNorm(16), nn.Linear(16, 16))
    assert norms_at_once(model) == []
    hidden = torch.randn(3, 16)
    torch.testing.assert_close(model[0](hidden), OffsetRMSNorm(16)(hidden))


def llama_norm() -> nn.Module:
    return next(module for module in tiny_model(0).modules() if type(module).__name__ == "LlamaRMSNorm")


def with_bias(norm: nn.Module) -> None:
    norm.bias = nn.Parameter(torch.zeros(norm.weight.shape))


def hooked(norm: nn.Module) -> None:
    norm.forward = lambda hidden_states: hidden_states


def on_meta(norm: nn.Module) -> None:
    norm.to("meta")


def less_its_mean(norm: nn.Module) -> None:
    norm.weight.data.mul_(0.01)
    norm.__class__ = type(
        "MeanRMSNorm",
        (type(norm),),
        {
            "forward": lambda self, hidden_states: (
                type(norm).__mro__[1].forward(self, hidden_states - hidden_states.mean())
            )
        },
    )


@pytest.mark.parametrize("change", [with_bias, hooked, on_meta, less_its_mean])
def test_a_norm_that_somebody_has_laid_hands_on_stays(change: Callable[[nn.Module], None]) -> None:
    norm = llama_norm()
    assert norms_at_once(llama_norm()) != []
    change(norm)
    assert norms_at_once(norm) == []


def test_norms_compute_themselves_again() -> None:
    norm = llama_norm()
    as_they_were(norms_at_once(norm))
    assert "forward" not in vars(norm)
    as_they_were(norms_at_once(norm))


def test_an_engine_that_does_not_come_up_leaves_the_norms_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(0)
    norms = [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]
    seen: list[bool] = []

    def broken(self: ContinuousTokens, processors: object) -> None:
        self._norms = norms_at_once(self._model)  # as on a GPU
        seen.extend("forward" in vars(norm) for norm in norms)
        raise RuntimeError("no")

    monkeypatch.setattr(ContinuousTokens, "_add_columns", broken)
    with pytest.raises(CannotServe, match="no"):
        ContinuousTokens(model, cache_tokens=256, page=16)
    assert seen == [True] * len(norms)
    assert not any("forward" in vars(norm) for norm in norms)
