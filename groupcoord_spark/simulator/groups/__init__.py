"""The state of groups in a running broker: members, epochs, assignments, timers, and the records of one group."""
