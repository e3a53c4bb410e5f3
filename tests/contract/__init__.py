"""The ten rules that every public learner keeps, one file for each group; ``test_contract`` runs all of them on all learners."""
