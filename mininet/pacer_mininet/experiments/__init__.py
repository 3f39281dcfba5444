"""The published tables and figures as experiments: their definitions, runs, and report.

`scenario` defines one run. `catalogue` lists the experiments, their runs and the published figures.
`runner` makes a run, inside the lab or a namespace. `workflow` has Snakemake make all of them, and
`store` keeps the results. `tables`, `plots` and `page` show them.
"""
