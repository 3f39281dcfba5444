"""The published tables and figures as experiments: data, runs of them, and the report.

`scenario` says what one run is; `catalogue` and the files it names say which runs an experiment
is made of, with the published figures beside; `runner` makes a run, inside the lab or a namespace;
`schedule` has all of them made, remembering what is done; `tables`, `plots` and `page` show them.
"""
