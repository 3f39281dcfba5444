"""P4 PSPacer in Mininet: nodes, the long-fat-network topology, its experiments and their report.

`nodes`, `topology` and `experiment` need Debian's `mininet` and the standard library alone;
`plot` and `report` need what `pyproject.toml` lists under `demo`.
"""
