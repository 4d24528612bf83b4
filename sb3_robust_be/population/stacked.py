"""The parameters of many equal networks as one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch as th
from torch import nn
from torch.func import stack_module_state

_ONLINE, _TARGET = "q_net.", "q_net_target."


class Part(NamedTuple):
    """Consecutive parameters of one head, which an update changes together."""

    names: list[str]
    columns: slice
    """Where they lie in a member's row"""
    secondary: bool
    """Whether they are the secondary head's, which has a learning rate of its own"""


class Layout:
    """
    Where each parameter of a policy lies in its member's row: values first, then the secondary head.

    :param policy: Any of the members'.
    :param apart: Whether each parameter is a part of its own, so that its gradient is used where it was computed. Else
        values and secondary head are one part each, which are fewer operations.
    """

    def __init__(self, policy: nn.Module, apart: bool = False) -> None:
        trained = {n: p for n, p in policy.named_parameters() if p.requires_grad and n.startswith(_ONLINE)}
        secondary = [name for name in trained if ".h_net." in name]
        values = [name for name in trained if name not in secondary]
        self.names = values + secondary
        self._shapes = {name: trained[name].shape for name in self.names}
        groups = [[name] for name in self.names] if apart else [names for names in (values, secondary) if names]
        self.parts: list[Part] = []
        self.n_parameters = 0
        for names in groups:
            start = self.n_parameters
            self.n_parameters += sum(self._shapes[name].numel() for name in names)
            self.parts.append(Part(names, slice(start, self.n_parameters), names[0] in secondary))

    def cut(self, rows: th.Tensor) -> list[th.Tensor]:
        """Cut rows of parameters into their parts.

        :param rows: Shape (members, parameters).
        :return: Views, shape (members, parameters of the part).
        """
        return [rows[:, part.columns] for part in self.parts]

    def named(self, parts: Sequence[th.Tensor], target: bool = False) -> dict[str, th.Tensor]:
        """Find the named tensors of the networks in the parts.

        :param parts: Of :meth:`cut`.
        :param target: Whether the names are the target network's.
        :return: Views, shape (members, …), by the parameter's name in the policy.
        """
        tensors = {}
        for part, columns in zip(self.parts, parts, strict=True):
            shapes = [self._shapes[name] for name in part.names]
            for name, shape, x in zip(
                part.names, shapes, columns.split([shape.numel() for shape in shapes], dim=1), strict=True
            ):
                tensors[_TARGET + name.removeprefix(_ONLINE) if target else name] = x.reshape(len(x), *shape)
        return tensors

    def split(self, rows: th.Tensor, target: bool = False) -> dict[str, th.Tensor]:
        """Split rows of parameters into the named tensors of the networks.

        :param rows: Shape (members, parameters).
        :param target: Whether the names are the target network's.
        :return: Views, shape (members, …), by the parameter's name in the policy.
        """
        return self.named(self.cut(rows), target)

    def join(self, tensors: Mapping[str, th.Tensor]) -> list[th.Tensor]:
        """Join named tensors to parts.

        :param tensors: By the parameter's name in the policy, shape (members, …).
        :return: As of :meth:`cut`, but no views.
        """
        return [th.cat([tensors[name].flatten(1) for name in part.names], dim=1) for part in self.parts]

    def stack(self, policies: Sequence[nn.Module], device: th.device) -> tuple[th.Tensor, dict[str, th.Tensor]]:
        """Collect the parameters of all members as rows.

        :param policies: One per member.
        :param device: Where to.
        :return: The rows of all, and by name what is not trained (constants of the networks), shape (members, …).
        """
        parameters, buffers = stack_module_state(list(policies))
        rows = th.cat(self.join({name: parameters[name].detach() for name in self.names}), dim=1).to(device)
        known = {*self.names, *(_TARGET + name.removeprefix(_ONLINE) for name in self.names)}
        rest = {n: p.detach().to(device) for n, p in {**parameters, **buffers}.items() if n not in known}
        return rows, rest


def check_stackable(policy: nn.Module) -> None:
    """Check that a policy's networks can be stacked.

    :param policy: A member's.
    :raises ValueError: If a module changes as it is used, or draws random numbers: such networks cannot be stacked.
    """
    for name, module in policy.named_modules():
        if isinstance(module, (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)):
            raise ValueError(
                f"policy_kwargs give the network the module {name} ({type(module).__name__}), and networks with batch "
                "normalisation or dropout cannot be stacked. Use LayerNorm, or train single agents."
            )
