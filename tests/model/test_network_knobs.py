"""What every network of a policy and its value function can be asked for, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from digideep.errors import ConfigError
from digideep.model.cnn import ActorCriticCNN
from digideep.model.config import CNNConfig, MixedConfig, MLPConfig, ResNetConfig, RNNConfig
from digideep.model.encoders import ActorCriticMixed
from digideep.model.frozen import FrozenMLP
from digideep.model.frozen_rnn import FrozenRNN
from digideep.model.mlp import ActorCriticMLP
from digideep.model.packed import PackedMLP
from digideep.model.resnet import ActorCriticResNet
from digideep.model.rnn import ActorCriticRNN
from digideep.spec import ArraySpec

PICTURE = ArraySpec("box", (2, 12, 12), "uint8", low=(0.0,), high=(255.0,))
VECTOR = ArraySpec("box", (3,), "float32")
SMALL = {"channels": (4,), "kernels": (3,), "strides": (2,)}
MAKERS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, ArraySpec]]] = {
    "mlp": (ActorCriticMLP, MLPConfig, {"hidden_sizes": (8, 6)}, {"shown": VECTOR}),
    "cnn": (ActorCriticCNN, CNNConfig, {"hidden_sizes": (8, 6), **SMALL}, {"shown": PICTURE}),
    "resnet": (ActorCriticResNet, ResNetConfig, {"hidden_sizes": (8, 6), "channels": (4,)}, {"shown": PICTURE}),
    "mixed": (
        ActorCriticMixed,
        MixedConfig,
        {"hidden_sizes": (8, 6), "picture_sizes": (5,), **SMALL},
        {"shown": PICTURE, "speed": VECTOR},
    ),
    "rnn": (ActorCriticRNN, RNNConfig, {"hidden_sizes": (8, 6), "units": 4}, {"shown": VECTOR}),
}
HIDDEN = {"secret": ArraySpec("box", (2,), "float32"), "gear": ArraySpec("discrete", (), "int64", n=(3,))}


def make(kind: str, *, specs: dict[str, ArraySpec] | None = None, **fields: Any) -> Any:
    network, config, own, shown = MAKERS[kind]
    torch.manual_seed(0)
    return network(config(**{**own, **fields}), observations=specs or shown, outputs=3)


def observations(specs: dict[str, ArraySpec], rows: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)

    def one(spec: ArraySpec) -> Any:
        if spec.kind == "discrete":
            return rng.integers(0, spec.n[0], rows)
        shape = (rows, *spec.shape)
        return rng.integers(0, 256, shape).astype(np.uint8) if spec.dtype == "uint8" else rng.standard_normal(shape)

    return {slot: torch.as_tensor(np.asarray(one(spec), spec.dtype)) for slot, spec in specs.items()}


def predict(network: Any, seen: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    if not hasattr(network, "hidden_shapes"):
        found: tuple[torch.Tensor, torch.Tensor] = network(seen)
        return found
    rows = len(next(iter(seen.values())))
    state = {key: torch.full((rows, *shape), 0.3) for key, shape in network.hidden_shapes.items()}
    outputs, values, _ = network(seen, state, torch.ones(1, rows))
    return outputs, values


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("critic_hidden_sizes", [None, (7,)], ids=["sizes as the policy", "sizes of its own"])
def test_no_output_of_the_policy_depends_on_what_only_the_critic_sees(kind: str, critic_hidden_sizes: Any) -> None:
    specs = {"secret": HIDDEN["secret"], **MAKERS[kind][3], "gear": HIDDEN["gear"]}
    own: dict[str, Any] = {"critic_observations": ("secret", "gear"), "critic_hidden_sizes": critic_hidden_sizes}
    network = make(kind, specs=specs, activation="tanh", **own)
    seen = observations(specs)
    seen["secret"].requires_grad_(True)

    outputs, values = predict(network, seen)
    by_policy = torch.autograd.grad(outputs.sum(), seen["secret"], allow_unused=True, retain_graph=True)[0]
    by_value = torch.autograd.grad(values.sum(), seen["secret"])[0]
    other = {**seen, "secret": seen["secret"].detach() + 1.0, "gear": (seen["gear"] + 1) % 3}
    changed_outputs, changed_values = predict(network, other)

    assert by_policy is None or not by_policy.any()
    assert by_value.abs().min().item() > 0.0
    assert torch.equal(outputs, changed_outputs)
    assert (values != changed_values).all()


def test_a_slot_that_there_is_not_is_one_line_with_those_there_are(kind: str) -> None:
    specs = {**MAKERS[kind][3], **HIDDEN}

    with pytest.raises(ConfigError) as unknown:
        make(kind, specs=specs, critic_observations=("secrets",))
    with pytest.raises(ConfigError) as everything:
        make(kind, specs=specs, critic_observations=tuple(specs))

    named = ", ".join(f"'{slot}'" for slot in sorted(specs))
    assert str(unknown.value) == (
        f"critic_observations: expected some of [{named}], found 'secrets'; name one of these slots"
    )
    assert "expected at least one slot left for the policy, found all of" in str(everything.value)


def test_a_critic_has_the_sizes_that_it_is_given(kind: str) -> None:
    network = make(kind, critic_hidden_sizes=(7, 5))

    assert network.value_head.weight.shape == (1, 5)
    assert network.policy_head.weight.shape[1] == (4 if kind == "rnn" else 6)
    outputs, values = predict(network, observations(network.observations))
    parameters = [p for p in network.parameters() if p.requires_grad]
    by_policy = torch.autograd.grad(outputs.square().sum(), parameters, allow_unused=True, retain_graph=True)
    by_value = torch.autograd.grad(values.square().sum(), parameters, allow_unused=True)
    both = [g is not None and h is not None for g, h in zip(by_policy, by_value, strict=True)]
    assert any(both) == (kind != "mlp")  # the features are shared, but for those of fully connected networks
    assert sum(h is not None and g is None for g, h in zip(by_policy, by_value, strict=True)) == 6  # with the head


def test_without_sizes_of_its_own_nothing_is_added(kind: str) -> None:
    plain, linear = make(kind), make(kind, critic_hidden_sizes=())

    assert "critic" not in " ".join(plain.state_dict())
    features = {"mlp": 3, "cnn": 5 * 5 * 4, "resnet": 6 * 6 * 4, "mixed": 5 + 3, "rnn": 4}
    assert linear.value_head.in_features == features[kind]


def test_hidden_layers_are_normalised_before_their_activation(kind: str) -> None:
    network = make(kind, layer_norm=True, critic_hidden_sizes=(7,), activation="relu")
    norms = [module for module in network.modules() if isinstance(module, torch.nn.LayerNorm)]
    seen: list[torch.Tensor] = []
    for norm in norms:
        norm.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))

    predict(network, observations(network.observations))

    assert len(norms) == {"mixed": 4}.get(kind, 3)  # two of the policy, one of the critic, and the encoder's
    assert len(seen) == len(norms)
    for normed in seen:
        rows = normed.flatten(1)
        torch.testing.assert_close(rows.mean(1), torch.zeros(4), atol=1e-5, rtol=0.0)
        torch.testing.assert_close(rows.var(1, unbiased=False), torch.ones(4), atol=2e-2, rtol=0.0)


def test_layers_that_are_shared_cannot_be_the_critics_own() -> None:
    for fields in ({"critic_hidden_sizes": (8,)}, {"critic_observations": ("secret",)}):
        name = next(iter(fields))
        with pytest.raises(ConfigError, match=f"MLPConfig/shared: expected false, since there are {name}, found true"):
            MLPConfig(shared=True, **fields)  # type: ignore[arg-type]


FIELDS: list[dict[str, Any]] = [
    {"critic_hidden_sizes": (7,)},
    {"critic_hidden_sizes": ()},
    {"hidden_sizes": (), "critic_hidden_sizes": (5, 4)},
    {"critic_observations": ("secret", "gear")},
    {"critic_observations": ("gear",), "critic_hidden_sizes": (9,), "activation": "relu"},
    {"layer_norm": True},
    {"layer_norm": True, "critic_hidden_sizes": (7,), "activation": "relu"},
]


def frozen_of(network: Any) -> Callable[..., Any]:
    if isinstance(network, ActorCriticMLP):
        assert FrozenMLP.can_freeze(network)
        return FrozenMLP(network)
    assert FrozenRNN.can_freeze(network)
    frozen = FrozenRNN(network)

    def advance(seen: dict[str, Any], *, rowwise: bool) -> Any:
        rows = len(next(iter(seen.values())))
        state = {key: np.full((rows, *shape), 0.3, np.float32) for key, shape in network.hidden_shapes.items()}
        return frozen(seen, state, np.ones(rows, np.float32), rowwise=rowwise)[0]

    return advance


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("frozen_kind", ["mlp", "rnn"])
def test_copies_in_numpy_predict_what_torch_predicts(frozen_kind: str, fields: dict[str, Any]) -> None:
    specs = {"shown": VECTOR, **HIDDEN}
    network = make(frozen_kind, specs=specs, **fields)
    for module in network.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
    seen = observations(specs, rows=5)
    outputs, values = predict(network, seen)

    frozen = frozen_of(network)
    raw = {slot: tensor.numpy() for slot, tensor in seen.items()}

    for rowwise in (True, False):
        found = frozen(raw, rowwise=rowwise)
        np.testing.assert_allclose(found.outputs, outputs.detach().numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.values, values.detach().numpy(), rtol=1e-4, atol=1e-5)
    whole = frozen(raw, rowwise=True)
    part = frozen({slot: array[1:3] for slot, array in raw.items()}, rowwise=True)
    np.testing.assert_array_equal(part.outputs, whole.outputs[1:3])
    np.testing.assert_array_equal(part.values, whole.values[1:3])


def test_the_outputs_of_a_frozen_policy_alone_need_no_secret() -> None:
    specs = {"shown": VECTOR, **HIDDEN}
    network = make("mlp", specs=specs, critic_observations=("secret", "gear"))
    raw = {slot: tensor.numpy() for slot, tensor in observations(specs).items()}
    frozen = FrozenMLP(network)

    np.testing.assert_array_equal(frozen.outputs({"shown": raw["shown"]}), frozen(raw, rowwise=False).outputs)
    assert frozen.is_split


def test_what_numpy_learns_and_what_it_leaves_to_torch() -> None:
    made = [make("mlp", specs={"shown": VECTOR, **HIDDEN}, **fields) for fields in FIELDS]

    assert [PackedMLP.can_pack(network) for network in made] == ["layer_norm" not in fields for fields in FIELDS]
