"""The command `pacer`: the controller from a terminal, in the habit of tc and ovs-vsctl.

- `main` is the command line; `words` the grammar of the words behind a command
  (`rate 500mbit limit 1MB`), and which fields of a resource it sets.
- `connection` talks to the controller; `render` prints; `top` is the live view;
  `statefile` reads the files of `pacer apply`.

Nothing in here imports the service: the command also runs where no switch software is.
"""
