"""The parameters of many equal networks as one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch as th
from torch import nn
from torch.func import stack_module_state

_ONLINE, _TARGET = "q_net.", "q_net_target."


class Layout:
    """
    Where each parameter of a policy lies in its member's row: values first, then the secondary head.

    :param policy: Any of the members'.
    """

    def __init__(self, policy: nn.Module) -> None:
        trained = {n: p for n, p in policy.named_parameters() if p.requires_grad and n.startswith(_ONLINE)}
        secondary = [name for name in trained if ".h_net." in name]
        self.names = [name for name in trained if name not in secondary] + secondary
        self.shapes = [trained[name].shape for name in self.names]
        self.bounds = np.cumsum([0, *(shape.numel() for shape in self.shapes)]).tolist()
        self.n_values = self.bounds[len(self.names) - len(secondary)]
        """How many parameters are of the values; the rest are the secondary head's."""
        self.n_parameters = self.bounds[-1]

    def split(self, rows: th.Tensor, target: bool = False) -> dict[str, th.Tensor]:
        """Split rows of parameters into the named tensors of the networks.

        :param rows: Shape (members, parameters).
        :param target: Whether the names are the target network's.
        :return: Views, shape (members, …), by the parameter's name in the policy.
        """
        names = [_TARGET + name.removeprefix(_ONLINE) for name in self.names] if target else self.names
        columns = zip(self.bounds, self.bounds[1:], strict=False)
        return {
            name: rows[:, start:end].reshape(len(rows), *shape)
            for name, shape, (start, end) in zip(names, self.shapes, columns, strict=True)
        }

    def join(self, tensors: Iterable[th.Tensor]) -> th.Tensor:
        """Join named tensors to rows of parameters.

        :param tensors: In the order of ``names``, shape (members, …).
        :return: Shape (members, parameters).
        """
        return th.cat([x.reshape(x.shape[0], -1) for x in tensors], dim=1)

    def stack(self, policies: Sequence[nn.Module], device: th.device) -> tuple[th.Tensor, dict[str, th.Tensor]]:
        """Collect the parameters of all members as rows.

        :param policies: One per member.
        :param device: Where to.
        :return: The rows of all, and by name what is not trained (constants of the networks), shape (members, …).
        """
        parameters, buffers = stack_module_state(list(policies))
        rows = self.join(parameters[name].detach() for name in self.names).to(device)
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
