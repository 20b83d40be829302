"""What happens inside one round: mini-batches, losses, local SGD, evaluation, and the cohort that offers them."""
