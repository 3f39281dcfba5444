"""Ryu's `rest_qos` paths, so that scripts written for it run unchanged.

`translate` turns its bodies into this controller's resources, and back; `api` has the paths.
"""
