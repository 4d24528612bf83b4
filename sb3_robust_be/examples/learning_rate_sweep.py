"""Which learning rate? Every seed at every one of them, trained at once."""

import numpy as np

from sb3_robust_be import QLC, Population
from sb3_robust_be.evaluation import bootstrap_interval

RATES, SEEDS, STEPS = [2**-13, 2**-11, 2**-9, 2**-7], range(6), 3000

if __name__ == "__main__":
    pop = Population(
        QLC,
        "MlpPolicy",
        "CartPole-v1",
        seeds=SEEDS,
        learning_rate=RATES,
        learning_starts=100,
        train_freq=2,
        exploration_fraction=0.3,
        verbose=0,
    )
    pop.learn(STEPS)

    # The episode return in the last quarter of training: shape (members,), seeds run fastest.
    final = pop.curve(4)[:, -1].reshape(len(RATES), len(SEEDS))
    failed = pop.failed.reshape(len(RATES), len(SEEDS)).sum(axis=1)
    rng = np.random.default_rng(0)

    print("learning rate   mean return, 95 % interval   worst seed   failed")
    for rate, of_rate, failures in zip(RATES, final, failed, strict=True):
        mean = bootstrap_interval(of_rate, rng=rng)
        interval = f"{mean.estimate:6.1f} [{mean.low:.1f}, {mean.high:.1f}]"
        print(f"2^{np.log2(rate):<+12.0f}   {interval:<26}   {of_rate.min():10.1f}   {failures} of {len(SEEDS)}")

    best = int(final.mean(axis=1).argmax())
    print(f"The best of these is 2^{np.log2(RATES[best]):+.0f}; its median seed is saved as the agent best.zip.")
    member = best * len(SEEDS) + int(np.argsort(final[best])[len(SEEDS) // 2])
    pop[member].save("best")  # an ordinary QLC
