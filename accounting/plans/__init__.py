"""Plans as people write them: tasks, mechanisms and their parameters, and what a plan costs."""
