"""What all solvers share: the learner as a state machine, what it asks for, and how examples are selected and scored."""
