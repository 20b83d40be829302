"""Representation alignment (FedCS): linear discriminant analysis with the client as the class, in small steps.

Pure functions. z [b, d] are the latents of a batch of one client; they never leave the client. Numbers in brackets are
equations of the paper (Yan and Long, 2024). The steps converge for a constant scatter W. In a run the features change:
S lags behind W^(-1/2), and S^2 is not the inverse of W.
"""

import torch
from torch import Tensor

SHRINKAGE = 0.01  # of the scatter of a batch, so that units that never fire do not let S grow without bound
SMALL = 1e-8  # a batch whose W has a smaller trace changes nothing


def batch_moments(z: Tensor, shrinkage: float = SHRINKAGE) -> tuple[Tensor, Tensor]:
    """Mean z_l [d] and scatter W [d, d] of a batch z [b, d]; `shrinkage` moves W towards a multiple of the identity."""
    mean = z.mean(0)
    W = (z - mean).T @ (z - mean) / len(z)
    return mean, (1 - shrinkage) * W + shrinkage * W.trace() / len(W) * _eye(W)


def whitening_step(S: Tensor, W: Tensor, rate: float | Tensor) -> Tensor:
    """Move S [d, d] towards W^(-1/2): S + rate (I - S W S), made symmetric (8, 13); without scatter S is unchanged.

    Example:
        >>> from fedlib.methods.fedcs.alignment import whitening_step
        >>> W = torch.tensor([[4.0, 0.0], [0.0, 1.0]])
        >>> whitening_step(torch.tensor([[0.5, 0.0], [0.0, 1.0]]), W, rate=0.1)  # W^(-1/2) stays
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    moved = S + rate * (_eye(S) - S @ W @ S)
    return torch.where(W.trace() > SMALL, (moved + moved.T) / 2, S)


def rotation_step(Phi: Tensor, u: Tensor, rate: float | Tensor) -> Tensor:
    """Move the columns of Phi [d, r] towards the eigenvectors of E[u u'] (12): Phi + rate (u y' - Phi triu(y y'))."""
    # y = Phi' u. Eigenvectors come in descending order of their eigenvalues, because column j is made orthogonal only
    # to the columns up to j. For the same reason the product with triu(y y') is a cumulative sum over columns.
    y = u @ Phi
    return Phi + rate * (u[:, None] - (Phi * y).cumsum(1)) * y


def whitening_rate(S: Tensor, W: Tensor, rate: float = 0.3) -> Tensor:
    """Step size for `whitening_step`: `rate` times the largest one that keeps S positive definite."""
    return rate / torch.maximum(W.trace().sqrt(), (S @ W).norm())


def rotation_rate(u: Tensor, rate: float = 0.1) -> Tensor:
    """Step size rate / ||u||^2 for `rotation_step`, or 0 for u = 0."""
    square = u @ u
    return torch.where(square > 0, rate / square.clamp(min=torch.finfo(u.dtype).tiny), 0)


def first_whitening(W: Tensor) -> Tensor:
    """Initial S below the fixed point, S_0 = I / sqrt(tr W); the identity if W has almost no trace."""
    trace = W.trace()
    return _eye(W) / torch.where(trace > SMALL, trace, 1).sqrt()


def orthonormal(Phi: Tensor) -> Tensor:
    """Make the columns of Phi orthonormal: Q of Phi = Q R, signed so that the diagonal of R is positive."""
    Q, R = torch.linalg.qr(Phi)
    return (Q * torch.where(R.diagonal() < 0, -1, 1).to(Q.dtype)).contiguous()  # with the strides of a checkpoint


STEPS = {  # rates of the two steps, and the shrinkage
    "normalised": (whitening_rate, rotation_rate, SHRINKAGE),
    "paper": (lambda S, W: 0.001, lambda u: 0.001, 0.0),
    "whitening": (whitening_rate, lambda u: 0.0, SHRINKAGE),
}


def ra_pass(z: Tensor, ra: dict[str, Tensor], steps: str, centred: bool = True) -> dict[str, Tensor]:
    """Update S and Phi of ONE client in one pass over its latents [batches, batch, d] (Algorithm 1)."""
    # `ra` is the download: Phi, later also S and the global mean z_g; `centred` subtracts z_g from the mean of a batch
    S, Phi = ra.get("S"), ra["Phi"]
    eta, lam, shrinkage = STEPS[steps]
    for batch in z:
        z_l, W = batch_moments(batch, shrinkage)
        S = first_whitening(W) if S is None else S
        S = whitening_step(S, W, eta(S, W))
        if "z_g" in ra:
            u = S @ (z_l - ra["z_g"] if centred else z_l)
            Phi = rotation_step(Phi, u, lam(u))
    return {"S": S, "Phi": Phi, "z": z.mean((0, 1))}


def scatters(z: Tensor, client: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance within and between clients (3, 4), [d, d] each, for latents z [N, d] and their clients [N]."""
    of_client = (client == client.unique()[:, None]).to(z.dtype)  # [clients, N]
    sizes = of_client.sum(1)
    means = of_client @ z / sizes[:, None]  # [clients, d]
    apart, around = means - z.mean(0), z - of_client.T @ means
    return around.T @ around / len(z), apart.T @ (sizes[:, None] * apart) / len(z)


def trace_ratio(P: Tensor, within: Tensor, between: Tensor) -> Tensor:
    """Separation of the clients in a projection P [d, r]: J(P) = Tr[(P' W P)^-1 P' B P] (5)."""
    return torch.linalg.solve(P.T @ within @ P, P.T @ between @ P).trace()


def closed_form(within: Tensor, between: Tensor, r: int) -> Tensor:
    """Projection P* [d, r] that maximises `trace_ratio`, by an eigenproblem (11), in descending order of eigenvalues.

    P*' W P* = I. Directions without scatter within clients (units that never fire) are left out.

    Example:
        >>> from fedlib.methods.fedcs.alignment import closed_form, trace_ratio
        >>> within, between = torch.diag(torch.tensor([1.0, 4.0])), torch.diag(torch.tensor([3.0, 4.0]))
        >>> trace_ratio(closed_form(within, between, r=1), within, between)  # 3 / 1, the better of 3 / 1 and 4 / 4
        tensor(3.)
    """
    values, vectors = torch.linalg.eigh(within)
    positive = values > len(values) * torch.finfo(values.dtype).eps * values.max()
    S = vectors[:, positive] * values[positive].rsqrt()  # [d, rank], S' W S = I
    Phi = torch.linalg.eigh(S.T @ between @ S).eigenvectors.flip(1)
    return S @ Phi[:, :r]


def _eye(like: Tensor) -> Tensor:
    return torch.eye(len(like), dtype=like.dtype, device=like.device)
