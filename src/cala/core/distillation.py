"""Distillation (Hinton et al., 2015): a network keeps the answers of an earlier one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(softmax(teacher / T) ‖ softmax(student / T)), mean over rows (n, C).

    Systems that multiply it by T² do so themselves.
    """
    log_student = F.log_softmax(student / temperature, dim=1)
    log_teacher = F.log_softmax(teacher / temperature, dim=1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)
