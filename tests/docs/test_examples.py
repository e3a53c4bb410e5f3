"""Every example runs to its end, in a process of its own, with ``--smoke``.

Most processes are forked from one that has imported torch.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.forked import ForkServer

ROOT = Path(__file__).parents[2]
NO_EXAMPLES = (
    "examples/benchmarks/pages.py",  # writes into docs; test_benchmark.py makes its pages
    "examples/papers/pages.py",  # writes into docs
    "examples/serving/attack.py",  # tests/serving tries each attack
    "examples/serving/kill.py",  # test_serving.py plays it
    "examples/serving/kill_serve.py",  # tests/test_command_line.py kills both processes
    "examples/serving/learner.py",  # runs until it is stopped; load.py starts it
    "examples/serving/local_postgres.py",  # runs another script
    "examples/serving/mlflow_model.py",  # needs MLflow
    "examples/serving/ray_serve.py",  # needs Ray
)
# Examples that begin in a new interpreter.
FRESH = {
    "examples/benchmarks/run.py": "starts processes by multiprocessing",
    "examples/benchmarks/scaling.py": "is a process group, and starts the other ranks",
    "examples/blocks.py": "starts processes by multiprocessing, and reads how much memory they have had",
    "examples/distributed/bandit.py": "is a process group",
    "examples/distributed/sweep.py": "starts processes",
    "examples/interrupts.py": "sends itself signals",
    "examples/benchmarks/hashed_embeddings.py": "trains by Lightning, whose import starts threads",
    "examples/neural_linear_digits.py": "trains by Lightning, whose import starts threads",
    "examples/papers/__main__.py": "lists scripts from within their folder, as `python examples/papers` does",
    "examples/serving/from_log_to_service.py": "has an event loop and a service in it",
    "examples/serving/load.py": "starts a service and measures it",
    "examples/serving/log_speed.py": "measures the time of writes to the disk",
    "examples/serving/service_speed.py": "starts services and measures them",
}
# The other files are modules of an example.
EXAMPLES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "examples").rglob("*.py")
    # The site's build runs the gallery.
    if "gallery" not in path.parts
    and path.relative_to(ROOT).as_posix() not in NO_EXAMPLES
    and '\nif __name__ == "__main__":' in path.read_text()
)
WRITTEN = {
    "examples/benchmarks/corrupted.py": ["corrupted.md"],
    "examples/benchmarks/csv_speed.py": ["log.csv", "log.vw"],
    "examples/benchmarks/messy.py": ["smoke.csv"],
    "examples/serving/from_csv_to_service.py": ["visits.csv", "outputs/config.yaml", "outputs/last.ckpt", "plans.pt"],
    "examples/blocks.py": ["blocks.md"],
    "examples/benchmarks/devices.py": ["devices.md"],
    "examples/benchmarks/early_rounds.py": ["early_rounds.md"],
    "examples/benchmarks/default.py": ["table.md"],
    "examples/benchmarks/fresh.py": ["smoke.jsonl", "tables.md"],
    "examples/benchmarks/late.py": ["smoke.jsonl", "late.md"],
    "examples/benchmarks/neural_linear.py": ["neural_linear.jsonl", "neural_linear.md"],
    "examples/benchmarks/private_audits.py": ["private_audits.json"],
    "examples/benchmarks/private_accuracy.py": ["private_accuracy.md"],
    "examples/benchmarks/private_epochs.py": ["private_epochs.md"],
    "examples/benchmarks/private_radius.py": ["private_radius.md"],
    "examples/benchmarks/radius_selectors.py": ["radius_selectors.md"],
    "examples/benchmarks/sparse_bandits.py": ["sparse_bandits.md"],
    "examples/benchmarks/run.py": ["runs.jsonl", "tables.md", "benchmark.png"],
    "examples/benchmarks/promises.py": ["promises.md"],
    "examples/benchmarks/drift_real.py": ["drift_real.md"],
    "examples/benchmarks/scaling.py": ["scaling.md"],
    "examples/distributed/bandit.py": ["bandit.pt"],
    "examples/benchmarks/full_information.py": ["full_information.md"],
    "examples/benchmarks/gradient_variation.py": ["gradient_variation.md"],
    "examples/benchmarks/hashed_embeddings.py": [],
    "examples/benchmarks/catalogues.py": [],
    "examples/benchmarks/compiled_core.py": [],
    "examples/benchmarks/hybrid.py": [],
    "examples/benchmarks/wide.py": [],
    "examples/distributed/sweep.py": [
        f"sweep/{learner}_{scale}_{ridge}_2.pt"
        for learner in ("UCB", "Thompson", "heavy-tailed UCB")
        for scale in (0.03, 0.1, 0.3)
        for ridge in (1.0, 10.0)
    ],
    "examples/clicks.py": ["clicks.md"],
    "examples/configs/data.py": ["clicks.csv", "money.csv", "sensors.csv", "salaries.csv"],
    "examples/counts.py": ["counts.md"],
    "examples/demo.py": ["demo.png", "bandit.pt"],
    "examples/drift.py": ["drift.png"],
    "examples/files/matrix.py": [],
    "examples/files/poison.py": ["poison.md"],
    "examples/fit_blt.py": ["fit_blt.png"],
    "examples/health_insurance.py": ["hill.png", "running_cost.png"],
    "examples/health_insurance_private.py": ["price.png", "coefficients.png"],
    "examples/neural_linear_digits.py": ["regret.png", "head.pt", "head.pt2", "logs"],
    "examples/linear_mdp.py": ["linear_mdp.png"],
    "examples/lqr.py": ["lqr.png"],
    "examples/monitoring.py": ["report.html", "monitoring.png"],
    "examples/noise_scale.py": ["noise_scale.png"],
    "examples/noise_without_horizon.py": ["noise_without_horizon.txt"],
    "examples/off_policy.py": ["off_policy.md"],
    "examples/oful_radius.py": ["oful_radius.png"],
    "examples/online_calibration.py": ["online_calibration.png"],
    "examples/online_classifier.py": ["online_classifier.pt"],
    "examples/papers/__main__.py": [],
    "examples/papers/glb_omd.py": [
        "glb_omd.json",
        *(f"glb_omd_{name}.png" for name in ("logistic", "poisson", "time")),
    ],
    "examples/papers/glb_omd_coverage.py": ["glb_omd_coverage.json", "glb_omd_coverage.png"],
    "examples/papers/glb_omd_covertype.py": [
        "glb_omd_covertype.json",
        "glb_omd_covertype.png",
        "glb_omd_covertype_arms.json",
        "glb_omd_covertype_arms_7.json",
    ],
    "examples/papers/glb_corruption.py": ["glb_corruption.json"],
    "examples/papers/glb_drift.py": ["glb_drift.json"],
    "examples/papers/glb_errata.py": ["glb_errata.json"],
    "examples/papers/glb_omd_speed.py": ["glb_omd_speed.png"],
    "examples/papers/glb_omd_time.py": ["glb_omd_time.json", "glb_omd_time_norms.png"],
    "examples/papers/glb_rates.py": ["glb_rates.json", "glb_rates.png"],
    "examples/papers/hvt_box.py": ["hvt_box.json"],
    "examples/papers/hvt_practical.py": ["hvt_practical.json"],
    "examples/papers/hvt_rates.py": ["hvt_rates.json"],
    "examples/papers/hvt_rivals.py": ["hvt_rivals.json"],
    "examples/papers/hvt_slopes.py": ["hvt_slopes.json", "hvt_slopes.png"],
    "examples/papers/hvt_ucb.py": [
        "hvt_ucb.json",
        *(f"hvt_ucb_{name}.png" for name in ("student_t", "gaussian", "wrong_moment", "infinite_variance")),
    ],
    "examples/papers/hvt_ucb_coverage.py": ["hvt_ucb_coverage.json", "hvt_ucb_coverage.png"],
    "examples/papers/hvt_ucb_speed.py": ["hvt_ucb_speed.png"],
    "examples/papers/instance_noise.py": ["instance_noise.json", "instance_noise.png"],
    "examples/papers/multinomial.py": ["multinomial.json"],
    "examples/papers/oons_bounds.py": ["oons_bounds.json"],
    "examples/papers/parameter_free.py": [
        "parameter_free.json",
        *(f"parameter_free_{name}.png" for name in ("growth", "noise", "comparator")),
    ],
    "examples/papers/parameter_free_speed.py": ["parameter_free_speed.png"],
    "examples/papers/private_oco.py": [
        "private_oco.json",
        *(f"private_oco_{name}.png" for name in ("1.5", "inf", "bandit")),
    ],
    "examples/papers/private_oco_figures.py": [
        "private_oco_figures.json",
        *(f"private_oco_{name}.png" for name in ("5_2", "5_3")),
    ],
    "examples/papers/private_oco_rates.py": [
        "private_oco_rates.json",
        *(f"private_oco_{name}.png" for name in ("rates", "interior", "hard", "p1", "bandit_dims")),
    ],
    "examples/papers/private_oco_speed.py": ["private_oco_speed.json", "private_oco_speed.png"],
    "examples/papers/private_oco_theorems.py": ["private_oco_theorems.json", "private_oco_bounds.png"],
    "examples/interrupts.py": ["interrupts.md"],
    "examples/outliers.py": ["outliers.md"],
    "examples/pooled_means.py": ["pooled_means.png"],
    "examples/rounding.py": ["rounding.md"],
    "examples/serving/from_log_to_service.py": ["report.html", "policy.pt"],
    "examples/serving/load.py": [],
    "examples/serving/log_speed.py": [],
    "examples/serving/service_speed.py": [],
    "examples/benchmarks/speed.py": ["speed.md"],
    "examples/system_identification.py": ["system_identification.png"],
}
SAID = {
    "examples/benchmarks/compiled_core.py": ["| `bandit(19, actions=7)` |"],
    "examples/benchmarks/corrupted.py": ["RAND: regret", "Student-t: regret", "| Tani and Futami x 1 |"],
    "examples/benchmarks/csv_speed.py": ["| VW | 1.0 |", "| fit |", "| imports alone |"],
    "examples/benchmarks/speed.py": [
        "| a round at 2 x 50 |",
        "| Vowpal Wabbit |",
        "| TorchScript |",
        "10,000 arms of bandit(32)",
    ],
    "examples/benchmarks/messy.py": ["| smoke | 600 |"],
    "examples/serving/from_csv_to_service.py": [
        "actions: free, shared; rewards: binary",
        "new minus old",
        "wrote plans.pt",
    ],
    "examples/serving/from_log_to_service.py": [
        "| always 95 % |",
        "always 95 % less learnt: ",
        "0 refused",
        "under the service, by self-normalised weights",
        "file: scores of 1000 decisions differ by ",
    ],
    "examples/serving/load.py": [
        "| full |",
        "| half |",
        "0 refused",
        "state equal to the log replayed, bit for bit: True",
    ],
    "examples/serving/log_speed.py": ["| SQLite, full |", "| SQLite, normal |"],
    "examples/serving/service_speed.py": ["| FastAPI alone |", "| and the policy |"],
    "examples/configs/data.py": ["clicks.csv", "money.csv", "sensors.csv", "salaries.csv"],
    "examples/files/matrix.py": [
        "| learner | TorchScript | archive | ONNX |",
        "| `OFUL(4)` | equal | equal | equal |",
        "Time of a round, in rounds of the learner in Python",
        "| `bandit(4, actions=3)` | equal | equal | equal |",
    ],
    "examples/files/poison.py": [
        "50 poisoned rounds",
        "| `OFUL`, `FreeGrad` | 0 wrong, state equal | 0 wrong, state equal |",
    ],
    "examples/blocks.py": [
        "Microseconds of a round, one thread",
        "| learner | learn: seconds | step: seconds | ratio | MiB above the data |",
        "Digits: 500 logged decisions, then the regret of 20 rounds on new images",
        "Sets that failed, of 4, d = 2, by size of blocks and delta",
    ],
    "examples/benchmarks/default.py": ["| clicks of 1000, batches of 200 | ", "| level 1000, wrong of 1000 | "],
    "examples/benchmarks/hashed_embeddings.py": [
        "| low rank, 600 rounds, 1 seeds | regret |",
        "| HashedEmbedding(2) | ",
    ],
    "examples/benchmarks/catalogues.py": ["| UCB, exact | ", "| UCB, FixedArms | ", "| recall by directions, % | 1 |"],
    "examples/benchmarks/hybrid.py": ["| set | radius | separate | ", "| digits | 1 | ", "| 10 | 100 | 100 | "],
    "examples/benchmarks/wide.py": ["| simulated | 300 | ", "| simulated | 200 | ", "| 1000 | 0.02 | "],
    "examples/benchmarks/devices.py": ["GFLOP/s in a matrix product", "learn and step: rounds a second"],
    "examples/benchmarks/early_rounds.py": ["| none | 1 | ", "| pareto | 1 | "],
    "examples/benchmarks/fresh.py": [
        "| all, 1 | ",
        "| set | torchonline.bandit | best default rival | error | ratio |",
        "| digits | dev | scikit-learn |",
    ],
    "examples/benchmarks/late.py": ["| set | rewards a batch | torchonline.bandit | LinUCB |", "| digits | 200 | "],
    "examples/benchmarks/neural_linear.py": [
        "Against a hand-written rival, without noise",
        "Against a hand-written rival, with Pareto-1.5 noise",
        "| set | neural-linear | scale=False | ratio |",
        "| digits | .",
        "| dev: mean, worst ratio |",
        "| processor time of a round |",
    ],
    "examples/benchmarks/private_audits.py": ["lower bounds on epsilon, 200 games", "LocalMD"],
    "examples/benchmarks/sparse_bandits.py": [
        "Regret in percent of that of arms at random: mean ± standard error",
        "| AR(0.1) | 24 | 60 | 1 | ",
        "The same at epsilon 1, with the best of four options in hindsight",
    ],
    "examples/benchmarks/private_accuracy.py": [
        "breast cancer: 100 + 113 records, d = 31",
        "of 2 seeds, by epsilon",
        "Progressive and final accuracy in percent",
        "DPTOFW, 64 a step, averaged, tuned",
        "DP-SGD, random batches of 32, tuned",
        "Noise of the sums at epsilon 1",
    ],
    "examples/benchmarks/private_epochs.py": [
        "| breast cancer | replace_one | 4 | banded, sampled | ",
        "of the others less that of DP-SGD with the same passes, paired by seed",
        "| breast cancer | 16 | 16 | 14.53 | 15.78 | 16.71 | 11.66 |",
    ],
    "examples/benchmarks/private_radius.py": ["diabetes | DPTOFW | 1 | ", "diabetes | DPFTRL | 8 | "],
    "examples/benchmarks/radius_selectors.py": [
        "Multiples of 27",
        "| digits, pareto |",
        "ratio to best, none",
        "doubly robust EXP4-IX, pareto | 1, 3, 9 |",
        "Rewards of unknown range, multiples of 27",
        '| digits, none, "ucb", reward_range=None |',
    ],
    "examples/benchmarks/run.py": [
        "Errors without noise: default against tuned",
        "All settings with Pareto-1.5 noise: dev",
        "| digits | dev | scikit-learn | 1797 | 64 | 10 | 0.898 | 30 |",
        "NumPy LinUCB, tuned",
        "OFUL, by its theory",
        "What tuning chose",
        "Processor time",
    ],
    "examples/benchmarks/promises.py": [
        "| OFUL | theta_bound | 1, right |",
        "| policy | digits |",
        "| AnytimeHeavyTailUCB | 0.25 |",
        "| GLBOMD | 100 |",
    ],
    "examples/benchmarks/drift_real.py": [
        "| learner | walk | option |",
        "DiscountedRidgeRegression",
        "NormalizedLMS",
        "SGD",
    ],
    "examples/benchmarks/scaling.py": [
        "Milliseconds of 100 decisions and of the sync after them",
        '| 4 | `"sums"` | 4 |',
        "a sync of 1000 ranks with 10 rounds each",
        '| 8 | `"leader"` |',
    ],
    "examples/distributed/bandit.py": [
        "1 process, 200 rounds each, learn_on='leader': 200 learnt",
        "mean regret of a process: ",
        "one state on all processes: True; the confidence set holds the truth: True",
    ],
    "examples/benchmarks/full_information.py": [
        "over 2 seeds",
        "| stream | learner | standardised | rescaled | raw |",
        "| breast cancer, 569 x 30 | FreeGrad per coordinate |",
    ],
    "examples/benchmarks/gradient_variation.py": [
        "Proposition 1 by 8 steps of Newton's method: the two sides differ by ",
        "| one pass, standardised | breast cancer |",
        "| breast cancer, batches | 16 rows | 256 rows | all rows |",
        "| layers | calibration | new head |",
        "| regret | noise, T = 8 | noise, T = 16 | slow drift, T = 8 | slow drift, T = 16 |",
    ],
    "examples/distributed/sweep.py": [
        "20 rounds, 2 seeds, one trial after another",
        "| mean regret | standard error | rounds/s |",
        "| heavy-tailed UCB | 0.3 | 10 | ",
    ],
    "examples/clicks.py": [
        "300 impressions with",
        "That cannot rank learners.",
        "| learner | all rounds | last quarter | misspecified |",
        *("| LocalGLB, default |", "| Thompson, theta_bound 12 |", "| OFUL, default |", "| uniform |"),
    ],
    "examples/counts.py": [
        "20190 person-years: mean 2.86 visits, variance 20.3, largest 77",
        "| LocalGLB, told theta_bound and dispersion |",
        "| visits | noise_scale | set lost | misspecified | warned | warned, no error bars | dispersion |",
        "| negative binomial | root of 77 |",
    ],
    "examples/demo.py": [
        "180 rounds, mean ± standard error over 2 seeds.",
        *("| torchonline.bandit ", "| Greedy, estimators of torchonline.bandit ", "| LinUCB ", "| epsilon-greedy "),
        "| Vowpal Wabbit ",
        "The file, in a process without torchonline, chooses the same offer for 200 of 200 pictures.",
    ],
    "examples/drift.py": [
        "OFUL, restarted",
        "AnytimeHeavyTailUCB, restarted",
        "discounted (heuristic)",
        "Regret curves",
    ],
    "examples/outliers.py": [
        "| bandit: outliers | plain | cuts rows |",
        "| 10 from round 1000 on |",
        "| clicks.yaml: features from round 1000 on | scaler | 0 to 30 |",
        "| times 1e6 | cuts rows |",
    ],
    "examples/pooled_means.py": ["Largest standard deviation: 4.96", "OFUL, told sigma / sqrt(n)", "0 of 4"],
    "examples/interrupts.py": ["| OFUL | 0 of 3 | 0 of 3 |", "| OONS | 0 of 3 | 0 of 3 |"],
    "examples/rounding.py": [
        "sets lost of 5 in 10 rounds",
        "| one direction, length 1e+07 |",
        "| own choices, theta_bound 35 |",
    ],
    "examples/fit_blt.py": ["degree 2: ", "Largest difference from the table", "13.7x", "15.7x", "16.6x"],
    "examples/health_insurance.py": [
        "of 30 + 90 families",
        "always 95 %",
        "AnytimeHeavyTailUCB, order 2",
        "Costs are not health.",
    ],
    "examples/health_insurance_private.py": [
        "56 persons to learn from, 11 of other families held out",
        "private mean",
        "fit to all at once",
        "visits at 95 % coinsurance",
        "has spent 1.000 by its ledger",
        "Not covered by any epsilon",
    ],
    "examples/neural_linear_digits.py": [
        "TorchScript file, in a process without torchonline: 500 of 500 choices are the head's",
        "archive file, in a process without torchonline: 500 of 500 choices are the head's",
        "rounds learnt: 200 when the file was written, 300 now",
    ],
    "examples/linear_mdp.py": [
        *("HeavyTailRegression", "RidgeRegression", "HuberRegression x 0.001", "greedy", "uniform", "no variance"),
        "HeavyTailRegression, learnt, optimistic",
    ],
    "examples/lqr.py": [
        "Optimal cost of a round: 4.898",
        "SystemIdentification, checked",
        "ridge, certainty equivalence",
    ],
    "examples/monitoring.py": [
        "| values | DriftAlarm | alpha for each comparison | z-test for each comparison |",
        "| clicks | 50 % to 40 % | 1000 | ",
        "Counts of the log: {'decisions': 300",
    ],
    "examples/noise_scale.py": ["Student-t, df 2.1", "two-point, q 0.0001", "pure noise"],
    "examples/noise_without_horizon.py": ["exponents: -0.85", "BLT without a horizon", "-0.51, 0.612"],
    "examples/off_policy.py": [
        "good overlap, 4 logs of 100 rounds",
        "| DR in order, wrong |",
        "logging learns: the target's value is 0.5649",
        "heavy tails, 4 logs of 400 rounds",
        "| light tails, half of the rounds | new minus old | 0.0 |",
        "| men | random | bts at the start | 46 |",
        "| men | bts | uniform items | 69 | 656 | 3.01",
    ],
    "examples/oful_radius.py": ["own choices", "against it", "classic", "Regret after 50 rounds"],
    "examples/online_calibration.py": [
        "a grid of 11 from 0.0001 to 10",
        "FreeGrad, default",
        "CLA-OONS, default",
        "Adam, other layer's best",
        "schedule-free SGD, worst",
        "| Prodigy | `step_scale`, 1 |",
        "of 11 rates of SGD have more loss than FreeGrad",
    ],
    "examples/online_classifier.py": ["200 rounds of 30 raw features", "log loss 0.", "first row: probability"],
    "examples/papers/__main__.py": ["hvt_ucb_coverage", "minutes"],
    "examples/papers/glb_omd.py": [
        "| Poisson | 7 | 0.975 | 929 | 1097 |",
        "logistic, S = 3, fixed arms, 2 trials: regret",
        "Poisson, S = 7, redrawn arms, 3 trials: regret",
        "Rivals at least twice as much",
        *(
            "LocalGLB, in the ball",
            "GLB-OMD, theorem",
            "Thompson",
            "Greedy",
            "GLOC",
            "GLM-UCB",
            "RS-GLinCB",
            "OFUGLB-e",
        ),
    ],
    "examples/papers/glb_omd_covertype.py": [
        "400 rows in clusters of",
        "Covertype: regret after 8 rounds",
        "| learner | theory | all times 0.1 | all times 0.01 | tuned | its factor |",
        *("| LocalGLB |", "| GLB-OMD, theorem |", "| OFULog-r |", "| uniform choice |"),
    ],
    "examples/papers/glb_omd_time.py": ["| LocalGLB | 1.0 |", "| OFUGLB, redrawn arms |"],
    "examples/papers/glb_rates.py": [
        "| logistic, circle, S = 3 | GLB-OMD, theorem |",
        "| Poisson: kappa* | 20.1 |",
        "slope in S of regret / sqrt(T / kappa*)",
        "slope in d of regret / sqrt(T / kappa*)",
        "| OFUGLB | log T √(T / kappa*) |",
    ],
    "examples/papers/glb_errata.py": ["it holds in 0 of 100 cases", "| 16 | none |"],
    "examples/papers/glb_omd_speed.py": ["OFUGLB, scipy", "exported program", "LocalGLB: a round at t = 20"],
    "examples/papers/glb_omd_coverage.py": ["logistic, S = 8", "GLBOMD: at most", "LocalGLB: at most"],
    "examples/papers/glb_corruption.py": [
        "Regret, covertype",
        "| told C, x 0.3 | ",
        "| told C / 4 | 0 | ",
        "| OFUL | ",
    ],
    "examples/papers/glb_drift.py": ["| clicks | turns | DiscountedGLB, tuned | ", "| counts | stays | LocalGLB | "],
    "examples/papers/hvt_box.py": [
        "| learner | radius_scale | sphere | box, each arm scaled | ",
        "| HeavyOFUL | 0.001 | ",
    ],
    "examples/papers/hvt_practical.py": [
        "| HvtUCB x 0.0003 | ",
        "| OFUL x 0.3 | ",
        "Student-t 2.1 noise, redrawn arms",
    ],
    "examples/papers/hvt_rates.py": [
        "Order 2, bound T^0.50, widths of theory",
        *("| MENU | ", "| CRMM | ", "| AdaOFUL | ", "| HuberBandit | ", "| BMM | ", "| slope | late |"),
    ],
    "examples/papers/hvt_rivals.py": [
        "| BTC | ",
        "| BMM | ",
        "| RobustUCB | ",
        "logistic rewards: regret",
        "| CRMM, link | ",
    ],
    "examples/papers/hvt_slopes.py": [
        "Student-t 1.3 noise, order 1.2, bound T^0.83",
        "No noise, told order 2",
        *("| AnytimeHeavyTailUCB | ", "| HvtUCB x 0.001 | ", "| CRTM x 0.03 | ", "| TOFU | "),
    ],
    "examples/papers/hvt_ucb.py": [
        "| Student-t 2.1 | 1.99 | 4.388 |",
        "Student-t 2.1 noise, told 1.31, redrawn arms, tuned: regret",
        "Pareto 1.5 noise, fixed arms, theory: regret",
        "Candidates within two standard errors of the best, in tuning",
        *("AnytimeHeavyTailUCB, symmetric", "HvtUCB", "OFUL", "HeavyOFUL", "CRTM", "CRMM", "TOFU", "MENU"),
    ],
    "examples/papers/hvt_ucb_coverage.py": ["one-sided Pareto 1.5", "AnytimeHeavyTailUCB: at most"],
    "examples/papers/hvt_ucb_speed.py": [
        *("HEAVY-OFUL, cold gradient descent", "times as long as one at t = 50"),
        *("Median time of a round", "0.001 times those", "| iterations of gradient descent |"),
    ],
    "examples/papers/instance_noise.py": [
        "Student-t 2.1 noise of varying scale, tuned",
        *("| OFUL | ", "| AnytimeHeavyTailUCB | ", "| HvtUCB x 0.001 | ", "| HeavyOFUL | "),
    ],
    "examples/papers/multinomial.py": [
        "| learner | 0, 0.5, 1 | worst | 0.6, 0, 1 | worst | 1, 0, 0, in between | worst | failed of 3 |",
        "| LocalGLM, greedy |",
    ],
    "examples/papers/oons_bounds.py": [
        "Table 1 as T varies",
        "| OFTRL, least of two | ",
        "| largest variance | ",
        "random order, 32 passes",
        "Equation (2), explicit and implicit hints",
        "sleeping / told",
        "| CLA-OONS, tiny first gradient | ",
        "The radius of CLA-OONS",
        "| OFTRL, step as printed | ",
        *("as many cells as rounds", "Quantiles of regret over trials", "Learners without a ball"),
        *("A floor for one gradient a round", "on the hardest linear losses", "not 0 with sparse gradients"),
    ],
    "examples/papers/parameter_free.py": [
        *(
            "fixed noise: regret",
            "constant noise: regret",
            "hardest: regret",
            "OONS, constant noise: slope in T",
            "hardest: slopes that",
        ),
        "CA-OONS, meta paper, preset paper: slope in T",
        "drift to and fro, without noise: regret after 4 rounds",
        "The additive constant is G√T = 3.",
        *("least constant with which it holds", "What CA-OONS pays for", "hindsight"),
        *("OONS, tight", "Optimistic OMD", "OFTRL", "KT", "Mirror descent", "CLA-OONS", "FreeGrad", "AdaGrad, tuned"),
    ],
    "examples/papers/parameter_free_speed.py": [
        "OGD in NumPy",
        "OONS, frozen, d = 32:",
        "CA-OONS, values, sketch, d = 32:",
    ],
    "examples/papers/private_oco_figures.py": [
        "Figure 5.2: suboptimality by step scale, T = 40, d = 5, mean ± sd of 2 trials",
        "| 1.5 | DP-TOFW as printed, NOT PRIVATE |",
        "p = inf, DPTOFW and NoisySGD: worst / best",
        "| 30 | 3 | DPTOFW | NoisySFW, by batch |",
        "p = 1.5: our NoisySFW, tuned and private, has less than the printed OFW in 5 of 12 cells",
        "NoisySGD, p = inf, T = 1000, d = 20: 0.0185 is 0.24 times the median",
        "all entries of theta* equal, best step scales",
    ],
    "examples/papers/private_oco_rates.py": [
        "Excess risk against epsilon: mean ± sd of 2 trials",
        "| against | p |",
        "rate: records, noise",
        "Excess at time t within one run, tuned for each t",
        "Regret at time t, tuned for the last t",
        "p = 1: suboptimality, the decision 0 has 1",
        "p = 1: suboptimality with Gumbel noise",
        "DPHDB: pseudo-regret after T = 40 rounds",
        "Logistic DPHDB",
        "Table 5.1, p = infinity, (1, 1/T)",
        "Worst excess over linear losses against n: mean of 4 trials",
        "| any learner, all losses |",
        "Worst excess over linear losses with one entry, p = 1",
        "LocalMD, conditional, has less than DPTOFW in",
    ],
    "examples/papers/private_oco_speed.py": [
        "| the same in NumPy",
        "BLT after 1000 steps: ",
        "How well the time tells a record from None",
    ],
    "examples/papers/private_oco_theorems.py": [
        "| p | epsilon | learner | Proposition A.2 / error | excess | Theorem A.1 / excess | Theorem A.2 / excess |",
        "| 1 | 64 | printed |",
        "| Theorem 3.6 at epsilon 64 |",
        "| 1 | greedy | θ, squared |",
        "| d | u | lambda | lambda / d | nu | gamma needed, mu of the link |",
        "| DPHDB at epsilon 8 |",
        "| p | epsilon | n | DPTOFW | tuned | phased SGD | tuned | snowball SGD | tuned |",
        "| p | epsilon | n | DPPOFW | tuned | polyhedral SFW | tuned | tree FW | tuned |",
        "| regression | DP-FTRL | d |",
        "AuditResult(epsilon >= ",
    ],
    "examples/papers/private_oco.py": [
        "p = 1.5: suboptimality after T records, mean ± sd of 2 trials",
        "as printed, NOT PRIVATE",
        "equation (3.2)",
        "no privacy",
        "tuned on the",
        "at least",
        "as printed, NOT PRIVATE, p = 1.5, T = 40, d = 5: AuditResult(",
        *("Risk, mean of 2 trials", "A step takes "),
        *("NoisySFW", "DP-FTRL", "LocalMD"),
        *("UCB, no privacy", "DP-HDB, printed", "DP-HDB, tuned", "DP-UCB, original"),
    ],
    "examples/system_identification.py": ["SystemIdentification", "4 x HeavyTailRegression", "least squares", "0.894"],
}


def small_covertype(folder: Path) -> list[str]:
    """A file that has the form of the Covertype data, and nothing to learn."""
    draw = random.Random(0).randrange
    rows = [[draw(1000) for _ in range(10)] + [0] * 44 + [draw(1, 3)] for _ in range(400)]
    path = folder / "covtype.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return ["--covertype", str(path)]


def small_log(folder: Path) -> list[str]:
    """Files that have the form of the Open Bandit Dataset's sample, with a click in twenty rounds."""
    draw = random.Random(0).choice
    names = ["timestamp", "item_id", "position", "click", *(f"user_feature_{k}" for k in range(4))]
    names += [f"user-item_affinity_{k}" for k in range(5)]
    for policy in ("random", "bts"):
        path = folder / "obd" / policy / "men"
        path.mkdir(parents=True)
        rows = [
            [
                f"2019-11-{24 + i % 7} 00:00",
                i % 5,
                i % 3 + 1,
                int(i % 20 == 0),
                *(draw("abc") for _ in range(4)),
                *[0.0] * 5,
            ]
            for i in range(150)
        ]
        (path / "men.csv").write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
        items = [["item_id", *(f"item_feature_{k}" for k in range(4))], *([k, 0.1 * k, *"aaa"] for k in range(4))]
        items.append([4, 0.5, *"bbb"])
        (path / "item_context.csv").write_text("\n".join(",".join(map(str, item)) for item in items) + "\n")
    return ["--data", str(folder / "obd")]


# What an example is given besides.
GIVEN = {"examples/papers/glb_omd_covertype.py": small_covertype, "examples/clicks.py": small_log}


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(ENVIRONMENT)
    yield server
    server.close()


def test_fresh_examples_exist() -> None:
    assert set(FRESH) <= set(EXAMPLES)


def test_a_forked_script_ends_as_a_fresh_one(server: ForkServer, tmp_path: Path) -> None:
    """With the same status, words, arguments, folder and modules beside it; nothing is left for the next."""
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    ends = {"good": "", "exits": "sys.exit(3)", "says": "sys.exit('no luck')", "fails": "raise ValueError('no luck')"}
    for name, end in ends.items():
        lines = ["import atexit, os, random, sys", "import beside", "atexit.register(print, 'the end')"]
        lines += ["print(__name__, sys.argv, os.getcwd(), sys.path[:2], beside.value, os.environ['COLUMNS'])"]
        lines += ["assert not hasattr(os, 'left')", "os.left = True", "print(sys.modules['__main__'].__file__)"]
        script.write_text("\n".join([*lines, end]) + "\n")
        forked = server.run([str(script), "--smoke", name], tmp_path)
        command = [sys.executable, str(script), "--smoke", name]
        fresh = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
        assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example: str, server: ForkServer, tmp_path: Path) -> None:
    given = GIVEN[example](tmp_path) if example in GIVEN else []
    command = [str(ROOT / example), "--smoke", "--output", str(tmp_path), *given]
    if example in FRESH:
        command.insert(0, sys.executable)
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    else:
        done = server.run(command, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for text in SAID[example]:
        assert text in done.stdout
    for name in WRITTEN[example]:
        assert (tmp_path / name).exists(), sorted(path.name for path in tmp_path.iterdir())
