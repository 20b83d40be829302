"""Representation alignment (FedCS): linear discriminant analysis with the client as the class, in small steps.

Pure functions. z [b, d] are the latents of a batch of one client; they never leave it. C1 to C11 are the equations of
notebook 02; the numbers in brackets are those of the paper (Yan and Long, 2024). The steps reach their limits for a W
that stays as it is. In a run the features move: S lags behind W^(-1/2), and S^2 is not the inverse of W.
"""

import torch
from torch import Tensor

SHRINKAGE = 0.01  # epsilon in C5: units that never fire do not let S grow without bound
SMALL = 1e-8  # trace of W below which a batch says nothing


def batch_moments(z: Tensor, shrinkage: float = SHRINKAGE) -> tuple[Tensor, Tensor]:
    """C5: mean z_l [d] and scatter W [d, d] of a batch, W shrunk towards a multiple of the identity."""
    mean = z.mean(0)
    W = (z - mean).T @ (z - mean) / len(z)
    return mean, (1 - shrinkage) * W + shrinkage * W.trace() / len(W) * _eye(W)


def whitening_step(S: Tensor, W: Tensor, rate: float | Tensor) -> Tensor:
    """C6 (8, 13): S + rate (I - S W S), made symmetric; S for a W without scatter. Its fixed point is W^(-1/2)."""
    moved = S + rate * (_eye(S) - S @ W @ S)
    return torch.where(W.trace() > SMALL, (moved + moved.T) / 2, S)


def rotation_step(Phi: Tensor, u: Tensor, rate: float | Tensor) -> Tensor:
    """C7 (12): Phi + rate (u y' - Phi triu(y y')), y = Phi' u. Its columns go to the eigenvectors of E[u u'].

    They come in order, the largest eigenvalue first, because column j is only cleared of the columns up to j. That
    also makes the product with triu(y y') a running sum over columns.
    """
    y = u @ Phi
    return Phi + rate * (u[:, None] - (Phi * y).cumsum(1)) * y


def whitening_rate(S: Tensor, W: Tensor, rate: float = 0.3) -> Tensor:
    """C9: rate / max(sqrt(tr W), ||S W||_F). With it S stays positive definite whatever the batch."""
    return rate / torch.maximum(W.trace().sqrt(), (S @ W).norm())


def rotation_rate(u: Tensor, rate: float = 0.1) -> Tensor:
    """C9: rate / ||u||^2; 0 for u = 0."""
    square = u @ u
    return torch.where(square > 0, rate / square.clamp(min=torch.finfo(u.dtype).tiny), 0)


def first_whitening(W: Tensor) -> Tensor:
    """C9: S_0 = I / sqrt(tr W), below the fixed point; I where W has no trace to speak of."""
    trace = W.trace()
    return _eye(W) / torch.where(trace > SMALL, trace, 1).sqrt()


def orthonormal(Phi: Tensor) -> Tensor:
    """C11: the Q factor of Phi [d, r], its columns signed so that the diagonal of R is positive."""
    Q, R = torch.linalg.qr(Phi)
    return (Q * torch.where(R.diagonal() < 0, -1, 1).to(Q.dtype)).contiguous()  # as a checkpoint keeps it


STEPS = {  # rates of C6 and C7, shrinkage of C5
    "normalised": (whitening_rate, rotation_rate, SHRINKAGE),
    "paper": (lambda S, W: 0.001, lambda u: 0.001, 0.0),
    "whitening": (whitening_rate, lambda u: 0.0, SHRINKAGE),
}


def ra_pass(z: Tensor, ra: dict[str, Tensor], steps: str, centred: bool = True) -> dict[str, Tensor]:
    """Algorithm 1 for ONE client and its batches of latents z [batches, batch, d]: its S and Phi, and its mean z.

    `ra` has what the server sent: Phi [d, d], and S [d, d] and the global mean z_g [d] once there are such.
    """
    S, Phi = ra.get("S"), ra["Phi"]
    eta, lam, shrinkage = STEPS[steps]
    for batch in z:
        z_l, W = batch_moments(batch, shrinkage)  # C5
        S = first_whitening(W) if S is None else S
        S = whitening_step(S, W, eta(S, W))  # C6
        if "z_g" in ra:
            u = S @ (z_l - ra["z_g"] if centred else z_l)
            Phi = rotation_step(Phi, u, lam(u))  # C7
    return {"S": S, "Phi": Phi, "z": z.mean((0, 1))}


def scatters(z: Tensor, client: Tensor) -> tuple[Tensor, Tensor]:
    """C1 (3, 4): covariance [d, d] within clients and between them, of latents z [N, d] with clients int64 [N]."""
    of_client = (client == client.unique()[:, None]).to(z.dtype)  # [clients, N]
    sizes = of_client.sum(1)
    means = of_client @ z / sizes[:, None]  # [clients, d]
    apart, around = means - z.mean(0), z - of_client.T @ means
    return around.T @ around / len(z), apart.T @ (sizes[:, None] * apart) / len(z)


def trace_ratio(P: Tensor, within: Tensor, between: Tensor) -> Tensor:
    """C2 (5): J(P) = Tr[(P' W P)^-1 P' B P], how far apart clients are in the projection P [d, r]."""
    return torch.linalg.solve(P.T @ within @ P, P.T @ between @ P).trace()


def closed_form(within: Tensor, between: Tensor, r: int) -> Tensor:
    """C4 (11): P* [d, r], which maximises `trace_ratio`, by an eigenproblem; P*' W P* = I, largest eigenvalue first.

    Directions without scatter within clients (units that never fire) are left out.
    """
    values, vectors = torch.linalg.eigh(within)
    kept = values > len(values) * torch.finfo(values.dtype).eps * values.max()
    S = vectors[:, kept] * values[kept].rsqrt()  # [d, rank], S' W S = I
    Phi = torch.linalg.eigh(S.T @ between @ S).eigenvectors.flip(1)
    return S @ Phi[:, :r]


def _eye(like: Tensor) -> Tensor:
    return torch.eye(len(like), dtype=like.dtype, device=like.device)
